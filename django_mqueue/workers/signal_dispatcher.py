"""The dispatcher of a worker process: the thread that sends events to the receivers of signals."""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from contextlib import suppress

from django.db import connections, reset_queries

from ..signals import Event
from . import connection_cleanup

logger = logging.getLogger("django_mqueue")

SIZE = 10_000
"""Maximum number of events that wait for slow receivers. Later events are dropped."""
LINGER = 5.0
"""Seconds that a stopping worker waits for its receivers. It has already left its groups."""
LOG_EVERY = 10.0


class SignalDispatcher:
    """Sends events in their order in one thread. Other threads only add events, and never wait for receivers.

    A receiver that is slow, raises or never returns delays later events; some are dropped and counted. It delays no
    transaction, lock or renewal. The thread starts with the first event.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._events: queue.Queue[Event | None] = queue.Queue(SIZE)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._logged_at = -math.inf

    def put(self, event: Event) -> None:
        with self._lock:
            try:
                self._start_thread()
                self._events.put_nowait(event)
                return
            except RuntimeError:
                logger.exception("cannot start the thread for signal receivers")
                self.dropped += 1
                return
            except queue.Full:
                self.dropped += 1
        now = time.monotonic()
        if now - self._logged_at >= LOG_EVERY:
            self._logged_at = now
            logger.warning("signal receivers are too slow: %s signals were dropped", self.dropped)

    def send(self) -> None:
        """Do nothing: the thread sends the events."""

    def __enter__(self) -> SignalDispatcher:
        return self

    def __exit__(self, *error: object) -> None:
        """Wait up to ``LINGER`` seconds until the receivers have got all events. Drop the rest."""
        if self._thread is None:
            return
        deadline = time.monotonic() + LINGER
        with suppress(queue.Full):
            self._events.put(None, timeout=LINGER)
        self._thread.join(max(deadline - time.monotonic(), 0))
        with suppress(queue.Empty):
            while True:
                self.dropped += self._events.get_nowait() is not None
        self._events.put(None)  # Ends the thread when its receiver returns.
        if self.dropped:
            logger.warning("signal receivers are too slow: %s signals were dropped in total", self.dropped)

    def _start_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="mqueue-signals", daemon=True)
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        try:
            while event := self._events.get():
                _send(event)
        finally:
            connections.close_all()


def _send(event: Event) -> None:
    """Send an event. The receivers have database connections as in a handler, which are cleaned up afterwards."""
    try:
        reset_queries()
        event()
    except BaseException:  # Also SystemExit: a receiver cannot stop the worker.
        logger.exception("signal receiver failed")
    if not connection_cleanup.after_use():
        logger.warning("signal receiver left a transaction open; its writes were rolled back")
