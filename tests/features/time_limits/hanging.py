"""Handlers that hang until their test releases them, and workers in threads that run them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from django_mqueue.workers import pool
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
from tests.support.processes import wait_until
from tests.support.threads import Background
from tests.support.waiting import PATIENCE

LIMIT = 1
"""Seconds: the ``max_runtime`` of most handlers here."""


class LimitedWait(threading.Event):
    """An event. Time limits apply only to calls that wait for it, however slow the machine is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._threads: set[int] = set()
        limit = pool._limit
        monkeypatch.setattr(
            pool, "_limit", lambda call: math.inf if self._threads.isdisjoint(call.threads) else limit(call)
        )

    def wait(self, timeout: float | None = None) -> bool:
        with self.limited():
            return super().wait(timeout)

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Apply the time limit to the call that runs this block."""
        thread = threading.get_ident()
        self._threads.add(thread)
        try:
            yield
        finally:
            self._threads.remove(thread)


class Hanging:
    """Handlers call ``hang`` and block until the test releases them. ``over`` holds each call's result or error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = LimitedWait(monkeypatch)
        self.over: list[object] = []
        self._inside = 0
        self._lock = threading.Lock()

    def hang(self, then: Callable[[], object] = lambda: None) -> None:
        with self._lock:
            self._inside += 1
        try:
            assert self.go.wait(PATIENCE)
            self.over.append(then())
        except BaseException as error:
            self.over.append(error)
            raise
        finally:
            with self._lock:
                self._inside -= 1

    def let_go(self) -> None:
        """Release the handlers, and wait until their threads have ended. Call it when no worker runs."""
        self.go.set()
        wait_until(lambda: not self._inside, "all have come out")
        wait_until(
            lambda: not [t for t in threading.enumerate() if "mqueue-handler" in t.name], "threads end"
        )


@contextmanager
def running(hanging: Hanging | None = None, threads: int = 2) -> Iterator[Runner]:
    """Run the handlers of topic "t" in the background. Release the handlers of ``hanging`` when the block ends."""
    runner = Runner(handlers(["t"]), RunOptions(threads=threads, max_seconds=PATIENCE))
    background = Background(runner.run).start()
    try:
        yield runner
    finally:
        if hanging:
            hanging.go.set()
        runner.stop()
        background.result()
