"""The thread of a worker process in which the receivers of its signals run."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from types import TracebackType

from django.db import connections as django_connections

from ..service.telling import Outbox
from ..signals import Event
from . import connections

logger = logging.getLogger("django_mqueue")

SIZE = 10_000
"""Events that wait for slow receivers; beyond that, new ones are dropped."""
LINGER = 5.0
"""Seconds that a worker waits at its end for what its receivers have not heard yet. Its group it has left before."""
SAY_EVERY = 10.0


class Announcer(Outbox):
    """Whoever works hands over events and goes on; one thread sends them, in their order.

    A receiver that is slow, raises, or never returns costs later events, which are dropped and counted, and nobody's
    work: no transaction, lock or renewal waits for it. The thread starts with the first event.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dropped = 0
        self._events: deque[Event] = deque()
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = self._abandoned = False
        self._said_at = -math.inf

    def __enter__(self) -> Announcer:
        self._closing = self._abandoned = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def put(self, event: Event) -> None:
        with self._news:
            taken = not self._closing and len(self._events) < SIZE and self._is_running()
            if taken:
                self._events.append(event)
                self._news.notify()
            else:
                self.dropped += 1
        if not taken:
            self._say()

    def send(self) -> None:
        """Nothing: the thread does."""

    def close(self) -> None:
        """Take nothing more, and wait a little for the receivers to hear what there is."""
        with self._news:
            thread, self._closing = self._thread, True
            self._news.notify()
        if thread is None:
            return
        thread.join(LINGER)
        with self._news:
            self._abandoned, left = True, len(self._events)
            self.dropped += left
            self._events.clear()
            self._news.notify()
        if self.dropped:
            logger.warning("receivers of signals are too slow: in all %s signals were not sent", self.dropped)

    def _is_running(self) -> bool:
        """Start the thread, the first time; False where the system gives none."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="mqueue-signals", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                logger.exception("there is no thread for the receivers of signals")
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        try:
            while event := self._next():
                self._send(event)
        finally:
            django_connections.close_all()

    def _next(self) -> Event | None:
        with self._news:
            while not (self._events or self._closing):
                self._news.wait()
            return self._events.popleft() if self._events and not self._abandoned else None

    def _send(self, event: Event) -> None:
        """With database connections as a handler has them, which are left as the next receiver expects them."""
        try:
            connections.before_use()
            event.send()
        except BaseException:  # SystemExit, for one: a receiver's wish is not the worker's.
            logger.exception("a receiver of a signal failed")
        try:
            if not connections.after_use():
                logger.warning(
                    "a receiver of a signal left a transaction open; what it wrote there was rolled back"
                )
        except Exception:  # The next use finds out and reconnects.
            logger.debug("a connection could not be checked", exc_info=True)

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said_at >= SAY_EVERY:
            self._said_at = now
            logger.warning("receivers of signals are too slow: %s signals were not sent", self.dropped)
