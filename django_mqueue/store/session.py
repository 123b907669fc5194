"""Transactions of the queue's own: READ COMMITTED, short, tried again when the server says so."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, Error, InterfaceError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from ..exceptions import NotMigrated
from .dialect import CHARSET, LOCK_WAIT_TIMEOUT, LOST, NO_GATE, NO_TABLE, NOT_REPLICATED, REFUSED, RETRIABLE
from .latest import latest_rows

Result = TypeVar("Result")
Work = Callable[[CursorWrapper], Result]
Row = tuple[Any, ...]

ATTEMPTS = 10
_pause = threading.Event()
"""Never set: waiting on it sleeps."""


def error_code(error: BaseException) -> int:
    """The server's or client's error number; 0 where there is none."""
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone: whether a COMMIT in flight took effect is then unknown."""
    return isinstance(error, InterfaceError) or (
        isinstance(error, DatabaseError) and error_code(error) in LOST
    )


def is_in_doubt(error: BaseException) -> bool:
    """Whether a COMMIT in flight may have taken effect: for this server's clients, or on one that takes its place."""
    return is_lost(error) or (isinstance(error, DatabaseError) and error_code(error) in NOT_REPLICATED)


def is_retriable(error: BaseException) -> bool:
    return isinstance(error, DatabaseError) and error_code(error) in RETRIABLE


def passes(error: BaseException) -> bool:
    """Whether a worker may wait and try again: the same may succeed later."""
    refused = isinstance(error, DatabaseError) and error_code(error) in REFUSED
    return refused or is_lost(error) or is_retriable(error)


def in_transaction(using: str) -> bool:
    """Whether the caller has a transaction open, by ``atomic`` or by autocommit turned off."""
    connection = connections[using]
    if connection.connection is None:
        # Nothing to ask, and perhaps no server: as it will be once there is one.
        return connection.in_atomic_block or not connection.settings_dict["AUTOCOMMIT"]
    return connection.in_atomic_block or not connection.get_autocommit()


def waits_briefly(using: str) -> bool:
    """Whether this thread's connection is that of a worker's loop (see ``silence``): it tries no lock wait again."""
    return getattr(connections[using], "mqueue_waits_briefly", False)


def is_lock_wait(error: BaseException) -> bool:
    """Whether a statement has waited for a lock for too long."""
    return isinstance(error, DatabaseError) and error_code(error) == LOCK_WAIT_TIMEOUT


def calls_hooks(using: str) -> bool:
    """Return whether Django calls ``on_commit`` hooks when the caller's transaction is committed, and only then.

    It does for an ``atomic`` block. In a transaction begun by turning autocommit off it may call them late or never.
    """
    connection = connections[using]
    return connection.in_atomic_block and connection.commit_on_exit


def run(
    using: str, work: Work[Result], *, level: str = "READ COMMITTED", again_after: Collection[int] = RETRIABLE
) -> Result:
    """``work(cursor)`` in a transaction of its own, again after a deadlock or lock wait, and its result.

    Inside a caller's transaction it joins that one, and nothing is retried: the server has rolled back
    more than this work then. Raises what the server raised last.
    """
    connection = connections[using]
    if waits_briefly(using):
        again_after = set(again_after) - {LOCK_WAIT_TIMEOUT}
    if in_transaction(using):
        with (
            transaction.atomic(using=using, savepoint=False), latest_rows(connection), _cursor(connection) as cursor,
        ):  # fmt: skip
            return work(cursor)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            if getattr(connection, "isolation_level", None) != level.lower():
                with connection.cursor() as cursor:
                    cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            with transaction.atomic(using=using), _cursor(connection) as cursor:
                return work(cursor)
        except Error as error:
            _note_lost(using, error)
            _close_half_ended(connection)
            if not isinstance(error, DatabaseError) or error_code(error) not in again_after:
                raise
            _again(error, attempt)
    raise AssertionError("unreachable")


@contextmanager
def ended_whole(using: str) -> Iterator[None]:
    """For a transaction that begins and ends within, unless it is the caller's: see ``_close_half_ended``."""
    connection, joined = connections[using], in_transaction(using)
    try:
        yield
    except Error as error:
        _note_lost(using, error)
        if not joined:
            _close_half_ended(connection)
        raise


def _close_half_ended(connection: BaseDatabaseWrapper) -> None:
    """After a COMMIT Django turns autocommit on again. A connection that is lost between the two would be taken for
    one with a transaction of the caller's."""
    if connection.connection is not None and not connection.in_atomic_block and not connection.autocommit:
        connection.close()


def execute(using: str, sql: str, params: Sequence[Any] = ()) -> int:
    """One statement that commits by itself (or belongs to the caller's transaction); its matched rows."""

    def work(cursor: CursorWrapper) -> int:
        cursor.execute(sql, params)
        return int(cursor.rowcount)

    return single(using, work)


def fetch(using: str, sql: str, params: Sequence[Any] = ()) -> list[Row]:
    """One reading statement and all its rows."""

    def work(cursor: CursorWrapper) -> list[Row]:
        cursor.execute(sql, params)
        return list(cursor.fetchall())

    seen = _seen.get()
    if seen is None:
        return single(using, work, locks=False)
    question = (using, sql, tuple(params))
    if question not in seen:
        seen[question] = single(using, work, locks=False)
    return list(seen[question])


_seen: ContextVar[dict[tuple[Any, ...], list[Row]] | None] = ContextVar("seen", default=None)


@contextmanager
def one_look() -> Iterator[None]:
    """In this block ``fetch`` asks each question once: for pages that only read, whose parts ask for the same. Their
    time is the same, too, so that what goes by the time is asked alike. A block in another is part of it."""
    if _seen.get() is not None:
        yield
        return
    token = _seen.set({})
    try:
        yield
    finally:
        _seen.reset(token)


def single(using: str, work: Work[Result], *, latest: bool = False, locks: bool = True) -> Result:
    """``work(cursor)``, which is one statement: it commits by itself, or belongs to the caller's transaction.

    A database error breaks the caller's transaction, as in ``run``, unless the statement takes no locks (``locks``).
    ``latest``: it locks rows there that others change.
    """
    joined = in_transaction(using)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with (
                latest_rows(connections[using]) if latest and joined else nullcontext(),
                _cursor(connections[using]) as cursor,
            ):
                return work(cursor)
        except Error as error:
            _note_lost(using, error)
            if joined and locks:
                # After a deadlock the server has rolled back all of it: Django refuses its next statement.
                with transaction.atomic(using=using, savepoint=False):
                    raise
            if joined or not isinstance(error, DatabaseError):
                raise
            if waits_briefly(using) and is_lock_wait(error):
                raise
            _again(error, attempt)
    raise AssertionError("unreachable")


def _cursor(connection: Any) -> CursorWrapper:
    """Return a cursor of a connection that can spell each key. Raise ``ImproperlyConfigured`` for another one.

    Looks once at each connection, without a statement: the client library knows the charset.
    """
    cursor: CursorWrapper = connection.cursor()
    raw = connection.connection
    if getattr(connection, "_mqueue_charset_of", None) is not raw:
        name = raw.character_set_name() if connection.vendor == "mysql" else CHARSET
        if name != CHARSET:
            cursor.close()
            raise ImproperlyConfigured(
                f"the connection to database {connection.alias!r} uses the charset {name}, which cannot spell every"
                f" key: messages of such a key would not be delivered. Set 'charset': '{CHARSET}' in the OPTIONS of"
                f" DATABASES[{connection.alias!r}]"
            )
        connection._mqueue_charset_of = raw
    return cursor


_lost: dict[str, object] = {}
"""By database: another object after each failure of a connection."""


def _note_lost(using: str, error: Error) -> None:
    """A server that refuses what it did before is as one that is gone: a failover may have made it a replica."""
    if passes(error) and not is_retriable(error):
        _lost[using] = object()


def _again(error: DatabaseError, attempt: int) -> None:
    """Wait a little, growing and at random, or raise: not every error goes away."""
    if not is_retriable(error) or attempt == ATTEMPTS:
        raise error
    _pause.wait(min(0.002 * 2**attempt, 0.5) * random.random())


@contextmanager
def explained(using: str) -> Iterator[None]:
    """Say what to do about a database that was not migrated, or whose gate rows were deleted."""
    try:
        yield
    except DatabaseError as error:
        if error_code(error) in NO_GATE or error_code(error) == NO_TABLE:
            raise NotMigrated(using) from error
        raise


class Watched:
    """Tells when this thread has a connection that was never noted: perhaps to another server.

    Each thread has one of its own; those who take turns come again with the same ones.
    """

    def __init__(self, using: str) -> None:
        self.using = using
        self._noted = weakref.WeakSet[Any]()
        self._lost = _lost.get(using)

    def note(self) -> None:
        self._lost = _lost.get(self.using)
        self._noted.add(self._now())

    def is_new(self) -> bool:
        return self._now() not in self._noted

    def was_lost(self) -> bool:
        """Whether a connection failed since one was noted: not all were closed on purpose."""
        return _lost.get(self.using) is not self._lost

    def _now(self) -> Any:
        connection = connections[self.using]
        connection.ensure_connection()
        return connection.connection


def discard(using: str) -> None:
    """Close a connection that failed, so that the next use opens a new one."""
    connection = connections[using]
    if not connection.in_atomic_block:
        connection.close()
