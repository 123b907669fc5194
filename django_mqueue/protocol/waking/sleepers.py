"""Sleep until a publisher wakes this process: by a socket on this host, and by a connection that sleeps in the server.

The second way needs one more connection to the database, which does nothing else. It is opened in a thread. If it is
not possible, publishers on other hosts do not wake this process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from django.db import DatabaseError, connections
from django.db.backends.utils import CursorWrapper

from ... import conf
from ...store.connection import session, wakeups
from ...store.connection.second_connection import second_connection
from .sockets import NO_SLOT, REQUESTS, SleepSocket, place_of, slots

logger = logging.getLogger("django_mqueue")

SLEEP = 60.0
"""Seconds for which the connection sleeps at a time. The loop of a worker polls more often."""
RETRY_SECONDS = 10.0
"""Seconds until the next attempt after the connection has failed."""


class Sleeper:
    """One process that sleeps and is woken. ``wake`` is called in another thread for each wake-up.

    ``start`` opens what the setting ``WAKE_WORKERS`` allows. Call it after a fork.
    """

    def __init__(self, using: str, topics: Sequence[str], wake: Callable[[], object]) -> None:
        self.using, self.topics, self._wake = using, list(topics), wake
        self._socket: SleepSocket | None = None
        self._connection: _SleepingConnection | None = None

    def start(self) -> None:
        ways = conf.get("WAKE_WORKERS")
        if ways == "never":
            return
        for place in (place_of(self.using), place_of(self.using, REQUESTS)):
            with suppress(OSError):
                slots(place)  # Removes the files of processes that died.
        self._open_socket(NO_SLOT)
        if ways == "everywhere":
            self._connection = _SleepingConnection(self.using, self.topics, self._wake, self._open_socket)
            self._connection.start()

    @property
    def can_be_woken(self) -> bool:
        return self._socket is not None or self._slot != NO_SLOT

    def sleep(self) -> None:
        """Ask for a wake-up. After this call, read what may have come before."""
        socket = self._socket  # The thread of the connection may replace it.
        if socket is not None and not socket.is_there:
            self._open_socket(self._slot)
            socket = self._socket
        if socket is not None:
            socket.sleep()
        if self._connection is not None:
            self._connection.asked.set()

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.stop()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._connection = None

    @property
    def _slot(self) -> int:
        return NO_SLOT if self._connection is None else self._connection.slot

    def _open_socket(self, slot: int) -> None:
        """Open the socket, or replace it by one with another slot, so that publishers of this host know the slot."""
        before, self._socket = self._socket, None
        if before is not None:
            before.close()
        try:
            opened = SleepSocket(place_of(self.using), self.topics, slot)
        except OSError as error:
            logger.info("publishers on this host cannot wake this worker, so it polls: %s", error)
            return
        self._socket = opened
        threading.Thread(target=self._receive, args=(opened,), name="mqueue-wake-ups", daemon=True).start()
        self._wake()  # The worker asks the new socket for a wake-up.

    def _receive(self, socket: SleepSocket) -> None:
        with suppress(OSError):
            while socket.wait(None) and socket is self._socket:
                self._wake()


class _SleepingConnection(threading.Thread):
    """A connection that sleeps in the server when ``asked``. ``slot``: its number; ``NO_SLOT`` while it is closed."""

    def __init__(
        self, using: str, topics: list[str], wake: Callable[[], object], opened: Callable[[int], object]
    ) -> None:
        super().__init__(name="mqueue-sleep", daemon=True)
        self.using, self.topics, self._wake, self._opened = using, topics, wake, opened
        self.slot = NO_SLOT
        self.asked, self._stopping = threading.Event(), threading.Event()
        self._is_reported = False
        self._database = str(connections[using].settings_dict["NAME"])

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with second_connection(self.using) as alias:
                    self._run(alias)
            except Exception as error:  # Whatever it is, the worker polls.
                logger.debug("publishers on other hosts cannot wake this worker now: %s", error)
            self.slot = NO_SLOT
            self._stopping.wait(RETRY_SECONDS)

    def _run(self, alias: str) -> None:
        with connections[alias].cursor() as cursor:
            slot = wakeups.hold_slot(cursor, self._database)
            if slot is None:
                level = logging.DEBUG if self._is_reported else logging.INFO
                logger.log(level, "publishers on other hosts cannot wake this worker: all slots are taken")
                self._is_reported = True
                return
            self.slot = slot
            self._opened(slot)
            while not self._stopping.is_set():
                self.asked.wait()
                if self._stopping.is_set():
                    return
                begun = time.monotonic()
                if wakeups.sleep(cursor, self._database, self.topics, slot, SLEEP):
                    self.asked.clear()
                    self._wake()
                elif time.monotonic() < begun + SLEEP / 2:
                    return  # The server did not sleep. Do not ask it all the time.

    def stop(self) -> None:
        """End the thread. If the database is away, the thread ends with the process."""
        self._stopping.set()
        self.asked.set()
        with suppress(DatabaseError, OSError):
            for _ in range(40):
                if self.slot != NO_SLOT:
                    session.run_statement(self.using, partial(self._end_sleep, slot=self.slot))
                self.join(0.05)
                if not self.is_alive():
                    return

    def _end_sleep(self, cursor: CursorWrapper, slot: int) -> None:
        wakeups.end_sleep(cursor, self._database, self.topics[0], slot)
