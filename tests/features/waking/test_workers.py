"""A commit wakes the workers of its topic."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from django_mqueue import Message, Retry, publish, reschedule
from django_mqueue.protocol.waking import sockets, wakers
from tests.support.processes import FAST, Workers, wait_until
from tests.support.running import Seen
from tests.support.shop.models import Step
from tests.support.transactions import Background, HeldTransaction

from .sleeping import HOUR, LONG, rests, sleeping, sleeps_in_server, worker

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_publish_wakes_a_worker_that_polls_once_an_hour() -> None:
    seen = Seen()
    with worker("orders", seen) as runner:
        for number in range(3):
            publish("orders", number)
            wait_until(lambda: number in seen.payloads, f"message {number} is handled")  # noqa: B023
            wait_until(lambda: rests(runner), "the worker sleeps again")
    assert seen.payloads == [0, 1, 2]


def test_many_publishers_wake_it() -> None:
    """Each commit happens at any moment of the worker's turn: while it reads, claims, settles or falls asleep."""
    seen, count = Seen(), 60
    with worker("orders", seen):

        def send(first: int) -> None:
            for number in range(first, first + count):
                publish("orders", number)

        with (
            Background(lambda: send(0)),
            Background(lambda: send(count)),
            Background(lambda: send(2 * count)),
        ):
            pass
        wait_until(lambda: len(seen.payloads) == 3 * count, "all messages are handled")


def test_a_message_that_commits_late_wakes_it() -> None:
    """Its offset is lower than that of a message that was handled."""
    seen = Seen()
    with worker("orders", seen):
        with HeldTransaction(lambda: publish("orders", "late")) as held:
            publish("orders", "early")
            wait_until(lambda: seen.payloads == ["early"], "the other is handled")
            held.commit()
        wait_until(lambda: seen.payloads == ["early", "late"], "it is handled")


def test_a_worker_wakes_when_a_scheduled_message_is_due() -> None:
    seen = Seen()
    with worker("orders", seen):
        publish("orders", "later", delay=HOUR, id="x")
        publish("orders", "soon", delay=0.3)
        wait_until(lambda: seen.payloads == ["soon"], "it is promoted when it is due")
        assert reschedule("orders", "x", delay=0.3)
        wait_until(lambda: seen.payloads == ["soon", "later"], "it is promoted when it is due")


def test_a_worker_wakes_when_a_retry_is_due() -> None:
    def fail_once(message: Message) -> None:
        if message.attempt == 1:
            raise Retry(delay=0.3)

    seen = Seen(fail_once)
    with worker("orders", seen):
        publish("orders", 1)
        wait_until(lambda: seen.attempts(1) == [1, 2], "the retry is handled")


def test_a_worker_in_another_process_is_woken() -> None:
    with Workers({**FAST, **LONG}) as workers:
        started = workers.start("orders:billing")
        wait_until(lambda: sleeping(), "the worker sleeps")
        publish("orders", {"n": 1})
        wait_until(lambda: Step.objects.filter(what="end", number=1).exists(), "it is handled")
        assert started.stop() == 0
    assert sleeping() == []


def test_a_worker_on_another_host_is_woken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process with another directory of temporary files has no socket in common, as on another host."""
    wakers._wakers.clear()
    with Workers({**FAST, **LONG, "WAKE_WORKERS": "everywhere"}) as workers:
        with monkeypatch.context() as other:
            other.setenv("TMPDIR", str(tmp_path))
            started = workers.start("orders:billing")
        wait_until(lambda: sleeps_in_server("orders"), "the worker sleeps in the server")
        assert not sleeping()
        for number in range(3):
            wait_until(lambda: sleeps_in_server("orders"), "the worker sleeps in the server")
            publish("orders", {"n": number})
            wait_until(lambda: Step.objects.filter(what="end", number=number).exists(), "it is handled")  # noqa: B023
        assert started.stop() == 0
    assert not sleeps_in_server("orders")


def test_a_lost_wake_up_only_delays_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    with worker("orders", seen) as runner:
        with monkeypatch.context() as lost:
            lost.setattr(sockets, "_send", lambda *paths: None)
            publish("orders", "lost")
        runner._polling.soon()  # The hour is over.
        runner._pool.wake()
        wait_until(lambda: seen.payloads == ["lost"], "the next poll finds it")
        publish("orders", "next")
        wait_until(lambda: seen.payloads == ["lost", "next"], "the next commit wakes it")


@pytest.mark.parametrize("ways", ["never", "host"])
def test_a_worker_that_cannot_be_woken_keeps_its_poll_interval(
    ways: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting forbids wake-ups, or the directory is not possible."""
    if ways == "host":
        monkeypatch.setattr(sockets, "_opened", refuse)
    seen = Seen()
    with worker("orders", seen, {**LONG, "WAKE_WORKERS": ways, "POLL_INTERVAL": 0.02}, rest=False) as runner:
        publish("orders", 1)
        wait_until(lambda: seen.payloads == [1], "it is handled")
        assert runner._polling._current == 0.02
        assert not runner._polling._sleeper.can_be_woken


def test_a_worker_polls_if_it_cannot_ask_for_a_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system has become read-only."""

    def refuse(*paths: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    seen = Seen()
    with worker("orders", seen, {**LONG, "POLL_INTERVAL": 0.02, "IDLE_POLL_INTERVAL": 0.02}, rest=False):
        wait_until(sleeping, "it sleeps")
        monkeypatch.setattr(os, "rename", refuse)
        publish("orders", 1)
        wait_until(lambda: seen.payloads == [1], "it is handled")
        monkeypatch.undo()


def refuse(place: str) -> str:
    raise PermissionError(place)
