"""``mqueue health`` and ``runconsumer --liveness-file``: a worker that hangs is found, and one that waits is not."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from django_mqueue import publish
from django_mqueue.models import DeliveryState, SubscriberHeartbeat
from tests.features.processes.children import children
from tests.own_server import OwnServer
from tests.support.processes import Worker, Workers, wait_until
from tests.support.running import registered, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_server]
PAST = 1_700_000_000.0


def health(*arguments: object) -> dict[str, Any]:
    """Run the verb, and return its document."""
    out = io.StringIO()
    error = ""
    try:
        call_command("mqueue", "health", *map(str, arguments), "--json", stdout=out)
    except CommandError as failure:
        error = str(failure)
    document: dict[str, Any] = json.loads(out.getvalue())
    assert error == "\n".join(document.get("problems", []))
    return document


def is_touched(path: Path) -> bool:
    return path.exists() and path.stat().st_mtime > PAST + 1


def stop(worker: Worker, pid: int) -> None:
    """Stop a process with SIGSTOP, and wait until it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    stat = Path(f"/proc/{pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it has stopped")


def test_the_file_is_touched_while_the_loop_runs_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "alive"
    with Workers() as workers:
        worker = workers.start("orders:billing", "--liveness-file", str(path), "--name", "w")
        wait_until(lambda: SubscriberHeartbeat.objects.filter(subscriber_name="w").exists(), "it has joined")
        os.utime(path, (PAST, PAST))
        wait_until(lambda: is_touched(path), "an idle worker touches the file")
        assert health("--liveness-file", path)["checks"][0]["healthy"] is True
        assert health("--worker", "w")["checks"][1]["healthy"] is True
        stop(worker, worker.pid)
        os.utime(path, (PAST, PAST))
        document = health("--liveness-file", path)
        assert document["checks"][0]["healthy"] is False
        assert document["checks"][0]["age"] > 30
        assert "more than 30 s" in document["problems"][0]
        worker.send(signal.SIGCONT)
        wait_until(lambda: is_touched(path), "it touches the file again")
        assert worker.stop() == 0
    assert not path.exists()
    assert "cannot be read" in health("--liveness-file", path)["problems"][0]
    assert "has left its groups" in health("--worker", "w")["problems"][0]


def test_the_file_of_a_supervisor_is_as_old_as_that_of_its_oldest_child(tmp_path: Path) -> None:
    """One child is stopped: the file gets its age, although the others work. A killed child is replaced in time."""
    path = tmp_path / "alive"
    with Workers() as workers:
        worker = workers.start(
            "orders:billing", "--processes", "2", "--liveness-file", str(path), "--name", "w"
        )
        wait_until(lambda: SubscriberHeartbeat.objects.count() == 2, "both have joined")
        wait_until(lambda: (tmp_path / "alive.1").exists() and (tmp_path / "alive.2").exists(), "two files")
        child, other = sorted(children(worker))
        stop(worker, child)
        # The supervisor keeps the newest time that it has seen of each child, so the clock decides here.
        before = path.stat().st_mtime
        wait_until(lambda: time.time() - path.stat().st_mtime > 3, "the file gets old")
        assert health("--liveness-file", path, "--max-age", "2")["problems"]
        assert path.stat().st_mtime >= before
        os.kill(child, signal.SIGCONT)
        wait_until(lambda: time.time() - path.stat().st_mtime < 2, "it works again")
        os.kill(other, signal.SIGKILL)
        wait_until(lambda: len(children(worker)) == 2 and other not in children(worker), "it is replaced")
        wait_until(lambda: time.time() - path.stat().st_mtime < 2, "all work")
        assert worker.stop() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_waits_for_its_database_is_alive(own_server: OwnServer, tmp_path: Path) -> None:
    """A restart of the worker would not help. One line says that the database is back, with the time it was away."""
    path = tmp_path / "alive"
    with Workers(using=own_server.alias) as workers:
        worker = workers.start("orders:billing", "--liveness-file", str(path), url=own_server.url)
        wait_until(lambda: SubscriberHeartbeat.objects.using(own_server.alias).exists(), "it has joined")
        connections[own_server.alias].close()
        own_server.stop()
        wait_until(lambda: "retrying" in worker.output(), "it has noticed")
        os.utime(path, (PAST, PAST))
        wait_until(lambda: is_touched(path), "it touches the file")
        document = health("--database", own_server.alias)
        assert document["checks"][0]["healthy"] is False
        assert "does not answer" in document["problems"][0]
        own_server.start()
        wait_until(lambda: "the database is back: worker" in worker.output(), "it is back")
        assert worker.stop() == 0
        assert worker.output().count("the database is back") == 1
        assert worker.output().count("database error, retrying") == 1


def test_an_old_heartbeat_is_a_problem() -> None:
    publish("orders", {"n": 1})
    with registered("orders", lambda message: None):
        run(name="w")
    SubscriberHeartbeat.objects.update(deregistered_at=None)
    assert health("--worker", "w", "--max-age", "60")["checks"][1]["healthy"] is True
    SubscriberHeartbeat.objects.update(heartbeat_at=PAST * 1000)
    problems = health("--worker", "w", "--worker", "nobody", "--max-age", "1m")["problems"]
    assert [text.partition(":")[0] for text in problems] == ["worker w", "worker nobody"]
    assert "more than 60 s" in problems[0]
    assert "has no heartbeat" in problems[1]
    assert DeliveryState.objects.get().acked


def test_without_options_it_asks_the_database(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("mqueue", "health")
    assert "database default" in capsys.readouterr().out


def test_a_path_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    with (
        registered("orders", lambda message: None),
        pytest.raises(CommandError, match=r"--liveness-file .* cannot be written: .* directory that exists"),
    ):
        run(liveness_file=str(tmp_path / "none" / "alive"))
