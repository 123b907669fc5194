"""The named lock (``GET_LOCK``) of a worker's session. The server releases it at once when the session ends.

Each heartbeat of a worker names this lock, so other workers can see that the process has ended (``protocol.takeover``).
A lock exists on one server only. So its name contains the server's identity, and other servers do not check it. Names
are shared by all databases of a server. The name also contains 128 random bits, so no other process has it.

Some proxies run the statements of a client in different sessions. Then the lock shows nothing about the client: the
worker logs it and names no lock. A ``Subscription`` names none either, because its caller may close the connection.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import DatabaseError, connections

from . import errors
from .dialect import is_mariadb
from .session_variables import worker_timeouts

logger = logging.getLogger("django_mqueue")

LEAVING = "-"
"""The end of ``session_lock``, after the lock's name, if the subscriber finishes what runs and leaves."""
CONSEQUENCE = "If this worker dies, other workers take over only after LEASE_DURATION"

_NAME = f"TRIM(TRAILING '{LEAVING}' FROM session_lock)"


def _prefix(using: str) -> str:
    """Return SQL for the first 23 characters of the names of all locks on the server that runs the statement."""
    uuid = "" if is_mariadb(using) else "@@server_uuid, "
    return f"CONCAT('mqueue.', LEFT(SHA2(CONCAT_WS(' ', {uuid}@@hostname, @@port, @@server_id), 256), 16))"


def is_free(using: str) -> str:
    """Return SQL that is 1 if ``session_lock`` names a lock of the server that runs the statement, and it is free."""
    return f"CASE WHEN LEFT(session_lock, 23) = {_prefix(using)} THEN IS_FREE_LOCK({_NAME}) ELSE 0 END"


def user_of(using: str) -> str:
    """Return SQL for the id of the session that holds ``session_lock``; NULL if it is free, or another server's."""
    return f"CASE WHEN LEFT(session_lock, 23) = {_prefix(using)} THEN IS_USED_LOCK({_NAME}) END"


class SessionLock:
    """The lock of one worker process, held by the session of its loop."""

    def __init__(self, using: str) -> None:
        self.using = using
        self._token = secrets.token_hex(16)
        self._connection: Any = None
        self._name, self._session = "", 0
        self._taken_at = math.inf
        self._is_usable = self._is_reported = False

    def hold(self) -> None:
        """Take the lock if the connection is new. An earlier session may still hold it: then heartbeats try again."""
        connection: Any = connections[self.using]
        if connection.connection is self._connection:
            return
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT {', '.join(self._sql())}", [self._token] * 3)
                self._name, _, self._session = cursor.fetchone()
            self._is_usable = True
        except DatabaseError as error:
            if errors.is_temporary(error):
                raise
            self._give_up(f"the server refuses GET_LOCK: {error}")
        self._connection, self._taken_at = connection.connection, time.monotonic()

    @property
    def is_usable(self) -> bool:
        """Return whether ``hold`` has prepared the present connection, and the lock belongs to this client alone."""
        return self._is_usable and connections[self.using].connection is self._connection

    @property
    def age(self) -> float:
        """Return the seconds since ``hold`` found the present connection."""
        return time.monotonic() - self._taken_at

    def _sql(self) -> tuple[str, str, str]:
        """Return SQL for the lock's name, for taking the lock if the session does not hold it, and for the session."""
        name = f"CONCAT({_prefix(self.using)}, '.', %s)"
        taken = f"IF(IS_USED_LOCK({name}) = CONNECTION_ID(), 1, GET_LOCK({name}, 0))"
        return name, taken, "CONNECTION_ID()"

    def held_name(self) -> tuple[str, list[Any]]:
        """Return SQL, with its parameters, for the lock's name; '' if the session that runs it does not hold it."""
        name, taken, session = self._sql()
        return f"IF({session} = %s AND {taken}, {name}, '')", [self._session, *[self._token] * 3]

    def check_session(self, session: int) -> None:
        """Give up if ``session``, which ran a statement of this connection, is not the one that ``hold`` found."""
        if session != self._session:
            self._give_up(
                "statements of one connection run in different sessions, probably because of a proxy"
            )

    def release(self) -> None:
        if self.is_usable:
            with suppress(DatabaseError), connections[self.using].cursor() as cursor:
                cursor.execute("SELECT RELEASE_LOCK(%s)", [self._name])

    def _give_up(self, why: str) -> None:
        """Name no lock until the client opens another connection."""
        self._is_usable = False
        if not self._is_reported:
            logger.warning("no session lock: database %s: %s. %s", self.using, why, CONSEQUENCE)
            self._is_reported = True


def of(using: str) -> SessionLock | None:
    """Return the usable lock of this thread's connection. Only a worker's loop has one."""
    lock: SessionLock | None = getattr(connections[using], "mqueue_session_lock", None)
    return lock if lock and lock.is_usable else None


@contextmanager
def worker_session(using: str, seconds: float) -> Iterator[Callable[[], None]]:
    """Set the timeouts of this thread's connection (see ``worker_timeouts``), and hold a ``SessionLock``.

    Yields a function to call before each use of the connection.
    """
    lock, connection = SessionLock(using), connections[using]

    with worker_timeouts(using, seconds) as set_timeouts:

        def prepare() -> None:
            set_timeouts()
            lock.hold()

        connection.mqueue_session_lock = lock  # type: ignore[attr-defined]
        try:
            yield prepare
        finally:
            lock.release()
            del connection.mqueue_session_lock  # type: ignore[attr-defined]
