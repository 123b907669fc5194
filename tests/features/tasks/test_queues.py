"""``runconsumer --tasks`` runs the jobs of queues, and the registry follows the setting ``TASKS``."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_mqueue import publish
from django_mqueue.tasks import MQueueBackend, wait_for_result
from django_mqueue.tasks.compat import BaseTaskBackend, InvalidTask, task_backends
from django_mqueue.testing import drain, published
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.sharing import Sharing
from django_mqueue.workers.turns import Turns
from tests.support.processes import Workers
from tests.support.running import Seen, registered, run

from . import jobs
from .conftest import tasks

pytestmark = pytest.mark.django_db(transaction=True)


def enqueue() -> None:
    """Enqueue a job in each queue, and publish a message for a handler."""
    jobs.add.enqueue(1, 1)
    jobs.add.using(queue_name="mail").enqueue(2, 2)
    publish("t", "message")


@pytest.mark.parametrize(
    ("queues", "found"),
    [([], [(1, 1), (2, 2)]), (["mail"], [(2, 2)]), (["mail", "default"], [(1, 1), (2, 2)])],
)
def test_tasks_selects_queues_and_no_handlers(queues: list[str], found: list[tuple[int, int]]) -> None:
    enqueue()
    with registered("t", seen := Seen()):
        call_command("runconsumer", tasks=queues, drain=True, verbosity=0)
    assert (sorted(jobs.seen), seen.payloads) == (found, [])


def test_a_queue_with_a_greater_weight_gets_more_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call takes 10 ms, and a claim no time, also on a slow machine."""
    ended, claimed = Turns.ended, Sharing.claimed
    monkeypatch.setattr(Turns, "ended", lambda turns, key, _: ended(turns, key, 0.01))
    monkeypatch.setattr(Sharing, "claimed", lambda sharing, key, count, _: claimed(sharing, key, count, 0))
    backend = task_backends["default"]
    assert isinstance(backend, MQueueBackend)
    mail = jobs.rests.using(queue_name="mail")
    backend.enqueue_all([(task, [task.queue_name], {}) for task in (jobs.rests, mail) for _ in range(40)])
    call_command("runconsumer", tasks=["default", "mail=9"], threads=1, drain=True, verbosity=0)
    assert len(jobs.seen) == 80
    assert jobs.seen[:40].count("mail") > 25, jobs.seen


def test_child_processes_share_the_jobs(tmp_path: Path) -> None:
    """Each job waits until the other process has begun one, too."""
    backend = task_backends["default"]
    assert isinstance(backend, MQueueBackend)
    results = backend.enqueue_all([(jobs.meets, [str(tmp_path), 2], {}) for _ in range(20)])
    with Workers() as workers:
        arguments = ("--tasks", "default=2", "--processes", "2", "--threads", "2")
        worker = workers.run(("django", "runconsumer"), *arguments, TEST_TASKS=json.dumps(tasks()))
        found = [wait_for_result(result, timeout=60) for result in results]
        assert worker.stop() == 0
    assert {result.status for result in found} == {"SUCCESSFUL"}
    assert len({result.return_value for result in found}) == 2


@pytest.mark.parametrize("weight", ["0", "x", "1001", ""])
def test_a_bad_weight_is_an_error(weight: str) -> None:
    with pytest.raises(CommandError, match=f"--tasks mail={weight}: the weight must be from 1 to 1000"):
        call_command("runconsumer", tasks=[f"mail={weight}"])


def test_handlers_and_queues_in_one_worker() -> None:
    enqueue()
    with registered("t", seen := Seen()):
        run(tasks=["mail"])
    assert (jobs.seen, seen.payloads) == ([(2, 2)], ["message"])


def test_without_names_a_worker_runs_handlers_and_jobs() -> None:
    enqueue()
    with registered("t", seen := Seen()):
        call_command("runconsumer", drain=True, verbosity=0)
    assert (sorted(jobs.seen), seen.payloads) == ([(1, 1), (2, 2)], ["message"])


def test_an_unknown_queue_is_an_error_that_names_the_queues() -> None:
    with pytest.raises(CommandError, match="has the queue 'post'; queues: default, mail"):
        call_command("runconsumer", tasks=["post"])


def test_without_a_backend_of_this_queue_tasks_is_an_error() -> None:
    other = {"default": {"BACKEND": f"{__name__}.OtherBackend"}}
    with (
        override_settings(TASKS=other),
        pytest.raises(CommandError, match="no backend in TASKS uses django_mqueue"),
    ):
        call_command("runconsumer", tasks=[])


class OtherBackend(BaseTaskBackend):
    """A backend of another kind."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        raise NotImplementedError


class OwnBackend(MQueueBackend):
    """A backend of the project that extends this one."""


def test_a_subclass_of_the_backend_is_found() -> None:
    own = {"default": {**tasks()["default"], "BACKEND": f"{__name__}.OwnBackend"}}
    with override_settings(TASKS=own):
        jobs.add.enqueue(1, 2)
        assert len(drain()) == 1


def test_the_registry_follows_the_settings() -> None:
    drain()
    assert {"tasks.default", "tasks.mail"} <= {handler.topic for handler in handlers()}
    with override_settings(TASKS={"default": {**tasks()["default"], "QUEUES": ["mail"]}}):
        drain()
        assert "tasks.default" not in {handler.topic for handler in handlers()}


@pytest.mark.parametrize("queue", ["x" * 101, "mail ", "a\nb", "mail_dlq", "mail_scheduled"])
def test_a_queue_whose_name_is_no_topic_is_an_error(queue: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"TASKS\['default'\]\['QUEUES'\]"):
        MQueueBackend("default", {**tasks()["default"], "QUEUES": [queue]})


def test_a_queue_that_is_gone_is_an_error_when_a_job_is_enqueued() -> None:
    mail = jobs.add.using(queue_name="mail")
    only_default = {"default": {**tasks()["default"], "QUEUES": ["default"]}}
    with override_settings(TASKS=only_default), pytest.raises(InvalidTask, match="Queue 'mail' is not valid"):
        mail.enqueue(1, 2)
    assert published() == []


def test_a_backend_without_queues_is_an_error() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"TASKS\['default'\]\['QUEUES'\] is empty"):
        MQueueBackend("default", {**tasks()["default"], "QUEUES": []})


def test_a_share_of_the_jobs_is_of_the_lowest_priority() -> None:
    with override_settings(TASKS=tasks(low_priority_share=0.5)):
        for priority in (10, -10):
            for n in range(40):
                jobs.echo.using(priority=priority).enqueue(priority, n)
        run(tasks=["default"], threads=1, max_messages=20)
    assert {args[0] for args, _ in jobs.seen} == {10, -10}
    with pytest.raises(ImproperlyConfigured, match="low_priority_share"):
        MQueueBackend("default", tasks(low_priority_share=2)["default"])


def test_check_finds_a_mistyped_recurring_job_although_nothing_imports_a_task() -> None:
    """In a process of its own, because these tests import tasks."""
    options = {"recurring": {"sums": {"task": "no.such.task", "every": 60}}}
    program = f"""
    import django
    from django.conf import settings
    settings.configure(
        INSTALLED_APPS=["django_mqueue"], DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        TASKS={{"default": {{"BACKEND": "django_mqueue.tasks.MQueueBackend", "OPTIONS": {options}}}}},
    )
    django.setup()
    from django.core.checks import run_checks
    print(*[one.id for one in run_checks()])
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.split() == ["django_mqueue.E005"]


def test_the_app_must_be_installed() -> None:
    backend = MQueueBackend("default", tasks()["default"])
    assert backend.check() == []
    with override_settings(INSTALLED_APPS=["django.contrib.contenttypes"]):
        (problem,) = backend.check()
    assert problem.id == "django_mqueue.E004"
    assert published() == []
