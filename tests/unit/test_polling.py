"""When a worker polls, by a clock of the test."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from django_mqueue.protocol.waking import polling
from django_mqueue.protocol.waking.polling import DISTRUST, GAP, Polling


class Sleeper:
    """Takes the place of the sockets. ``asked`` counts the requests for a wake-up."""

    def __init__(self, using: str, topics: list[str], wake: Any) -> None:
        self.wake, self.can_be_woken, self.asked = wake, True, 0

    def sleep(self) -> None:
        self.asked += 1


class Tailer:
    """Takes the place of the log: it reports what the test says."""

    def __init__(self, arrived: bool, planned_in: float) -> None:
        self.arrivals, self._arrived, self._planned_in = 0, arrived, planned_in
        self.woken = False

    def tick(self, *, woken: bool) -> bool:
        self.woken = woken
        self.arrivals += self._arrived
        return False

    def due_in(self) -> float:
        return self._planned_in


class Worker:
    """A loop that reads whenever a read is due. ``reads`` has the time and the reason of each read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(polling, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(polling, "Sleeper", Sleeper)
        self.polling = Polling("default", ["t"], 0.1, lambda: None)
        self.sleeper: Any = self.polling._sleeper
        self.reads: list[float] = []

    def read(
        self, *, arrived: bool = False, idle: bool = True, ready: bool = True, planned_in: float = math.inf
    ) -> bool:
        """Read, and return whether a publisher has woken the worker."""
        tailer = Tailer(arrived, planned_in)
        self.polling.read(tailer, ready=ready, idle=idle)  # type: ignore[arg-type]
        return tailer.woken

    def pause(self, *, ready: bool = True) -> float:
        """Let time pass until the next read, and return the seconds."""
        due_in = self.polling.due_in(ready=ready)
        self.now += due_in
        return round(due_in, 3)

    def pauses(self, count: int, **result: Any) -> list[float]:
        found = []
        for _ in range(count):
            self.read(**result)
            found.append(self.pause())
        return found


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def test_the_interval_grows_while_nothing_happens(worker: Worker) -> None:
    assert worker.pause() == 0
    assert worker.pauses(6) == [0.2, 0.4, 0.8, 1, 1, 1]
    assert worker.pauses(1, arrived=True) == [0.1]
    assert worker.pauses(2) == [0.2, 0.4]


def test_it_does_not_grow_while_there_is_work(worker: Worker) -> None:
    assert worker.pauses(3, idle=False) == [0.1, 0.1, 0.1]


def test_it_does_not_grow_if_the_worker_cannot_be_woken(worker: Worker) -> None:
    worker.sleeper.can_be_woken = False
    assert worker.pauses(3) == [0.1, 0.1, 0.1]
    assert worker.sleeper.asked == 0


def test_a_given_interval_may_be_longer_than_the_longest(worker: Worker) -> None:
    assert Polling("default", ["t"], 60, lambda: None)._longest == 60


def test_planned_work_is_done_in_time(worker: Worker) -> None:
    assert worker.pauses(4, planned_in=0.3) == [0.2, 0.3, 0.3, 0.3]


def test_a_wake_up_makes_a_read_due(worker: Worker) -> None:
    worker.pauses(6)
    worker.read()
    worker.now += 0.5
    worker.sleeper.wake()
    assert worker.pause() == 0
    assert worker.read(arrived=True)
    worker.sleeper.wake()
    assert worker.pause() == GAP
    assert worker.read(arrived=True)
    assert not worker.read()


def test_the_worker_asks_for_a_wake_up_before_each_read_for_which_it_has_room(worker: Worker) -> None:
    worker.read()
    worker.read(ready=False)
    assert worker.sleeper.asked == 1


def test_a_worker_that_has_room_again_reads_and_asks(worker: Worker) -> None:
    """A wake-up came while all threads were busy. Later commits wake it only after it has asked again."""
    worker.read()
    worker.sleeper.wake()
    worker.now += 0.05
    worker.read(ready=False, idle=False)
    assert worker.pause(ready=False) == 0.1
    worker.read(ready=False, idle=False)
    assert worker.pause(ready=True) == GAP
    worker.read()
    assert worker.sleeper.asked == 2
    assert worker.pause() == 0.2


def test_a_message_without_a_wake_up_ends_the_growth(worker: Worker) -> None:
    worker.pauses(6)
    worker.read(arrived=True)
    assert worker.pause() == 0.1
    assert worker.pauses(8)[-1] == 0.1
    worker.now += DISTRUST
    assert worker.pauses(6)[-1] == 1


def test_a_wake_up_may_come_after_the_poll_that_found_its_message(worker: Worker) -> None:
    worker.pauses(6)
    worker.read(arrived=True)
    worker.now += 0.02
    worker.sleeper.wake()
    assert worker.pauses(8)[-1] == 1


def test_a_message_that_was_found_before_the_worker_asked_needs_no_wake_up(worker: Worker) -> None:
    worker.read(arrived=True)
    assert worker.pauses(8)[-1] == 1
