"""Decide when a worker reads the log's tail: after a wake-up, and at intervals that grow while nothing arrives."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

from ... import conf, instruments
from ..tailer import Tailer
from .sleepers import Sleeper

GAP, TIME_FRACTION_MAX = 0.005, 0.2
"""The least seconds between two reads after wake-ups, and the maximum fraction of the time that they take. They bound
the cost of frequent commits."""
ANNOUNCED_WITHIN = 0.5
"""Seconds to wait for the wake-up of a message that a poll has found first."""
DISTRUST = 300.0
"""Seconds for which the interval does not grow after a message has come without a wake-up."""


class Polling:
    """Decides when to read, for one process. It is a context manager, to be entered after a fork.

    ``interval``: the seconds between two polls; None: the least ``POLL_INTERVAL`` of the topics. It grows up to
    ``IDLE_POLL_INTERVAL`` while the process is idle and can be woken. ``wake`` ends the process's wait; other threads
    call it.
    """

    def __init__(
        self, using: str, topics: Sequence[str], interval: float | None, wake: Callable[[], None]
    ) -> None:
        self.interval = _least("POLL_INTERVAL", topics) if interval is None else interval
        self._longest = max(self.interval, _least("IDLE_POLL_INTERVAL", topics))
        self._current, self._at = self.interval, -math.inf
        self._last, self._gap = -math.inf, GAP
        self._wake, self._woken = wake, threading.Event()
        self._sleeper = Sleeper(using, topics, self._on_wake)
        self._asleep = False
        self._unannounced_at: float | None = None
        self._distrust_until = -math.inf

    def __enter__(self) -> Polling:
        self._sleeper.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._sleeper.stop()

    def _on_wake(self) -> None:
        self._woken.set()
        self._wake()

    def soon(self) -> None:
        """Read in the next turn of the loop."""
        self._at = -math.inf

    def due_in(self, *, ready: bool) -> float:
        """Return the seconds until the next read. ``ready``: the process could start more messages now."""
        due = self._at
        if self._woken.is_set() or (ready and not self._asleep and self._sleeper.can_be_woken):
            due = min(due, self._last + self._gap)
        return max(due - time.monotonic(), 0)

    def read(self, tailer: Tailer, *, ready: bool, idle: bool) -> bool:
        """Read the tail. Return whether more can be read at once. ``idle``: no message runs or waits in the process.

        A process that is ready asks for a wake-up before it reads, so that no commit falls between the two.
        """
        was_asleep, was_woken = self._asleep, self._woken.is_set()
        self._woken.clear()
        self._last = time.monotonic()
        if ready and self._sleeper.can_be_woken:
            self._sleeper.sleep()
            self._asleep = True
        elif was_woken:
            self._asleep = False
        before = tailer.arrivals
        more = tailer.tick(woken=was_woken)
        took = time.monotonic() - self._last
        instruments.record(instruments.POLL_SECONDS, took)
        self._gap = min(max(took / TIME_FRACTION_MAX, GAP), self.interval)
        arrived = tailer.arrivals > before
        self._update_trust(arrived=arrived, was_asleep=was_asleep, was_woken=was_woken)
        trusted = self._sleeper.can_be_woken and self._last >= self._distrust_until
        if idle and trusted and not arrived:
            self._current = min(2 * self._current, self._longest)
        else:
            self._current = self.interval
        self._at = self._last + min(self._current, tailer.due_in())
        return more

    def _update_trust(self, *, arrived: bool, was_asleep: bool, was_woken: bool) -> None:
        """Distrust wake-ups if a message arrives without one: its publisher may be on a host that cannot send any."""
        if was_woken:
            self._unannounced_at = None
        elif arrived and was_asleep and self._unannounced_at is None:
            self._unannounced_at = self._last
        elif self._unannounced_at is not None and self._last > self._unannounced_at + ANNOUNCED_WITHIN:
            self._unannounced_at, self._distrust_until = None, self._last + DISTRUST


def _least(setting: str, topics: Sequence[str]) -> float:
    return min(float(conf.get(setting, topic)) for topic in topics)
