"""The dispatcher of a worker process: the thread that sends events to the receivers of signals."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from types import TracebackType

from django.db import connections as django_connections

from ..protocol.events import EventQueue
from ..signals import Event
from . import connections

logger = logging.getLogger("django_mqueue")

SIZE = 10_000
"""Maximum number of events that wait for slow receivers. Later events are dropped."""
LINGER = 5.0
"""Seconds that a stopping worker waits for its receivers. It has already left its groups."""
SAY_EVERY = 10.0


class SignalDispatcher(EventQueue):
    """Sends events in their order in one thread. Other threads only add events, and never wait for receivers.

    A receiver that is slow, raises or never returns delays later events; some are dropped and counted. It delays no
    transaction, lock or renewal. The thread starts with the first event.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dropped = 0
        self._events: deque[Event] = deque()
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = self._abandoned = False
        self._said_at = -math.inf

    def __enter__(self) -> SignalDispatcher:
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
        """Do nothing: the thread sends the events."""

    def close(self) -> None:
        """Take no more events, and wait up to ``LINGER`` seconds until the receivers have got all events."""
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
            logger.warning("signal receivers are too slow: %s signals were dropped in total", self.dropped)

    def _is_running(self) -> bool:
        """Start the thread on the first call. Return False if the system gives no thread."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="mqueue-signals", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                logger.exception("cannot start the thread for signal receivers")
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
        """Send an event. The receivers have database connections as in a handler, which are cleaned up afterwards."""
        try:
            connections.before_use()
            event.send()
        except BaseException:  # Also SystemExit: a receiver cannot stop the worker.
            logger.exception("a signal receiver failed")
        try:
            if not connections.after_use():
                logger.warning("a signal receiver left a transaction open; its writes were rolled back")
        except Exception:  # The next use reconnects.
            logger.debug("a connection could not be checked", exc_info=True)

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said_at >= SAY_EVERY:
            self._said_at = now
            logger.warning("signal receivers are too slow: %s signals were dropped", self.dropped)
