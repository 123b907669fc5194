"""``runconsumer --reload`` in a project of its own: a changed file restarts the worker, which finishes what runs."""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.utils import autoreload

from django_mqueue import publish
from django_mqueue.models import DeliveryState, PartitionLease
from django_mqueue.workers.processes.reload import run_with_reload
from tests.support.processes import Worker, Workers, wait_until
from tests.support.shop.models import Door, Step
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_server]

SETTINGS = """
from tests.support.worker_settings import *
INSTALLED_APPS = [*INSTALLED_APPS, "shelf"]
LOGGING["loggers"]["django.utils.autoreload"] = {"handlers": ["console"], "level": "INFO"}
"""
CONSUMERS = """
from django_mqueue import consumer
from tests.support.shop.consumers import act

print("version {version}", flush=True)

@consumer("shelf", group="g")
def put(message):
    act(message)
"""

STOPS_AT_ITS_START = """
import os
import signal
import threading

from django.utils import autoreload

def start_django(*arguments, **options):
    os.kill(os.getppid(), signal.SIGTERM)
    threading.Event().wait()

autoreload.start_django = start_django
"""
"""The inner process sends SIGTERM to the outer one, and waits for its signal before the worker's thread starts."""


class Project:
    """A Django project with the app ``shelf``. ``write`` changes one of its files."""

    def __init__(self, place: Path) -> None:
        self.app = place / "shelf"
        self.app.mkdir()
        (place / "shelf_settings.py").write_text(SETTINGS)
        self.environment = {"DJANGO_SETTINGS_MODULE": "shelf_settings", "PYTHONPATH": str(place)}
        self._times = itertools.count(1)
        self.write("__init__.py", "")
        self.write("models.py", "")
        self.write("consumers.py", CONSUMERS.format(version=1))

    def write(self, name: str, text: str) -> None:
        (self.app / name).write_text(text)
        self.touch(name)

    def touch(self, name: str) -> None:
        """Move the file's time by a second, so that each call is a change."""
        path = self.app / name
        at = path.stat().st_mtime + next(self._times)
        os.utime(path, (at, at))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def start(workers: Workers, project: Project) -> Worker:
    return workers.run(("django", "runconsumer"), "shelf:g", "--reload", "--name", "w", **project.environment)


def change_until(project: Project, name: str, condition: Callable[[], object], what: str) -> None:
    """Touch the file until the reloader notices. It compares with the time at which it first saw the file."""

    def changed() -> object:
        project.touch(name)
        return condition()

    wait_until(changed, what, every=0.5)


def done(number: int) -> bool:
    return Step.objects.filter(what="end", number=number).exists()


def reloads(worker: Worker) -> int:
    return worker.output().count("changed, reloading")


def test_a_changed_file_restarts_the_worker_after_it_has_finished_what_runs(project: Project) -> None:
    """The running handler ends and is acked. The worker then starts again with the new code, under the same name."""
    publish("shelf", {"n": 1, "do": "wait", "door": "exit"}, key="k")
    with Workers() as workers:
        worker = start(workers, project)
        wait_until(Step.objects.exists, "the handler runs")
        project.write("consumers.py", CONSUMERS.format(version=2))
        change_until(project, "consumers.py", lambda: reloads(worker), "the change is noticed")
        wait_for_a_renewal()
        assert "version 2" not in worker.output()
        Door.objects.create(name="exit")
        wait_until(lambda: "version 2" in worker.output(), "the new code runs")
        publish("shelf", {"n": 2}, key="k")
        wait_until(lambda: done(2), "the new worker handles a message")
        assert worker.stop() == 0
    assert set(Step.objects.values_list("attempt", flat=True)) == {1}
    assert Step.objects.values("pid").distinct().count() == 2
    assert DeliveryState.objects.filter(acked=True).count() == 2


@pytest.mark.parametrize("name", ["consumers.py", "models.py"])
def test_broken_code_does_not_end_the_command(project: Project, name: str) -> None:
    """``consumers.py`` fails in the worker. ``models.py`` fails earlier, when Django loads the apps."""
    whole = (project.app / name).read_text()
    with Workers() as workers:
        worker = start(workers, project)
        wait_until(lambda: "version 1" in worker.output(), "the worker starts")
        project.write(name, "this is no Python")
        change_until(project, name, lambda: "SyntaxError" in worker.output(), "the broken code is loaded")
        project.write(name, whole)
        seen = worker.output().count("version 1")
        change_until(
            project, name, lambda: worker.output().count("version 1") > seen, "the mended code is loaded"
        )
        publish("shelf", {"n": 1}, key="k")
        wait_until(lambda: done(1), "the worker handles a message")
        assert worker.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("to_all", [True, False], ids=["to each process", "to the command"])
def test_a_signal_finishes_what_runs_and_ends_the_command(
    project: Project, number: signal.Signals, to_all: bool
) -> None:
    publish("shelf", {"n": 1, "do": "wait", "door": "exit"}, key="k")
    with Workers() as workers:
        worker = start(workers, project)
        wait_until(Step.objects.exists, "the handler runs")
        os.killpg(worker.pid, number) if to_all else worker.send(number)
        wait_for_a_renewal()
        assert worker.running
        Door.objects.create(name="exit")
        assert worker.wait() == 0
    assert done(1)
    assert DeliveryState.objects.get().acked
    assert set(PartitionLease.objects.values_list("holder", flat=True)) == {""}


def test_two_signals_to_the_worker_let_it_finish_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal to the whole group and the one of the outer process arrive one after the other."""
    done: list[str] = []
    begun, stopped = threading.Event(), threading.Event()

    def first(main: Callable[[], None]) -> None:
        threading.Thread(target=main).start()
        assert begun.wait(PATIENCE)
        raise SystemExit

    def second(number: int, handler: object) -> None:
        if number == signal.SIGTERM:
            raise SystemExit

    def work() -> None:
        begun.set()
        assert stopped.wait(PATIENCE)
        done.append("worked")

    monkeypatch.setenv(autoreload.DJANGO_AUTORELOAD_ENV, "true")
    monkeypatch.setattr(autoreload, "run_with_reloader", first)
    monkeypatch.setattr(signal, "signal", second)
    with pytest.raises(SystemExit):
        run_with_reload(work, stopped.set)
    assert done == ["worked"]


def test_sigterm_before_the_worker_begins_ends_the_command(project: Project) -> None:
    project.write("models.py", STOPS_AT_ITS_START)
    with Workers() as workers:
        worker = start(workers, project)
        assert worker.wait() == 0
        assert "version 1" not in worker.output()


def test_the_second_signal_ends_the_command_at_once(project: Project) -> None:
    publish("shelf", {"n": 1, "do": "wait", "door": "exit"}, key="k")
    with Workers() as workers:
        worker = start(workers, project)
        wait_until(Step.objects.exists, "the handler runs")
        worker.send(signal.SIGINT)
        wait_for_a_renewal()
        worker.send(signal.SIGINT)
        assert worker.wait() == 128 + signal.SIGINT
    assert not done(1)


def test_an_error_of_the_worker_is_shown_and_a_change_starts_it_again(project: Project) -> None:
    """The new code names another group, so no handler fits the command's argument."""
    with Workers() as workers:
        worker = start(workers, project)
        wait_until(lambda: "version 1" in worker.output(), "the worker starts")
        project.write("consumers.py", CONSUMERS.format(version=2).replace('group="g"', 'group="h"'))
        error = re.compile(r"no handler is registered for 'shelf:g'.*\nwaiting for a change")
        change_until(project, "consumers.py", lambda: error.search(worker.output()), "the error is shown")
        project.write("consumers.py", CONSUMERS.format(version=3))
        change_until(project, "consumers.py", lambda: "version 3" in worker.output(), "it starts again")
        assert worker.stop() == 0


def wait_for_a_renewal() -> None:
    held = PartitionLease.objects.filter(partition_key="k").exclude(holder="")
    before = held.get().lease_renewed_at
    wait_until(lambda: held.filter(lease_renewed_at__gt=before).exists(), "the worker renews its lease")
