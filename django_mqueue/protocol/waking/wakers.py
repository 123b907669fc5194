"""Wake processes on other hosts, in a thread of the publisher with its own connection. The publisher never waits.

Without processes on other hosts, the thread ends after one statement, and the next check is ``CHECK_EVERY`` seconds
later. So a database that is used on one host has no lasting connections for this.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from contextlib import suppress

from django.db import connections

from ...store.connection import wakeups
from ...store.connection.second_connection import second_connection
from .sockets import place_of, slots

logger = logging.getLogger("django_mqueue")

CHECK_EVERY = 10.0
"""Seconds between two searches for processes on other hosts."""
PAUSE = 0.01
"""Seconds between two rounds of wake-ups. A round serves all commits since the last one."""
CLOSE_AFTER = 10.0
"""Seconds without a commit after which the connection is closed."""
RETRY_SECONDS = 60.0
"""Seconds until the next attempt after an error, for example if workers use another database account."""

_wakers: dict[str, _Waker] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_wakers.clear)


def wake(using: str, topic: str) -> None:
    """Let the thread wake the processes on other hosts that consume the topic. Returns at once."""
    waker = _wakers.get(using)
    if waker is None:
        waker = _wakers.setdefault(using, _Waker(using))
    waker.ask(topic)


class _Waker:
    """The thread of one database, which runs only while there is something to do."""

    def __init__(self, using: str) -> None:
        self.using = using
        self._topics: set[str] = set()
        self._asked, self._lock = threading.Event(), threading.Lock()
        self._not_before = -math.inf
        self._thread: threading.Thread | None = None

    def ask(self, topic: str) -> None:
        if time.monotonic() < self._not_before:
            return
        with self._lock:
            self._topics.add(topic)
            self._asked.set()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="mqueue-waker", daemon=True)
                with suppress(RuntimeError):  # No thread can start now, or the interpreter is shutting down.
                    thread.start()
                    self._thread = thread

    def _run(self) -> None:
        try:
            with second_connection(self.using) as alias:
                self._serve(alias)
        except Exception as error:  # Whatever it is, workers poll.
            logger.debug("cannot wake workers on other hosts: %s", error)
            self._not_before = time.monotonic() + RETRY_SECONDS
        finally:
            with self._lock:
                self._thread = None

    def _serve(self, alias: str) -> None:
        database, place = str(connections[alias].settings_dict["NAME"]), place_of(self.using)
        others, check_at = set[int](), -math.inf
        with connections[alias].cursor() as cursor:
            while self._asked.wait(CLOSE_AFTER):
                with self._lock:
                    topics, self._topics = self._topics, set()
                    self._asked.clear()
                if time.monotonic() >= check_at:
                    others = wakeups.held_slots(cursor, database) - slots(place)
                    check_at = time.monotonic() + CHECK_EVERY
                if not others:
                    self._not_before = check_at
                    return
                for topic in topics:
                    for slot in wakeups.used_slots(cursor, database, topic, sorted(others)):
                        wakeups.end_sleep(cursor, database, topic, slot)
                time.sleep(PAUSE)
