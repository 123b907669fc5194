"""The idle timeout and the lock wait timeout of connections."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from django.db import DatabaseError, connections

from . import session

LOCK_WAIT = 1
"""Seconds, the minimum of MySQL. Statements that can skip locked rows do so; this limits the others."""


@contextmanager
def worker_timeouts(using: str, seconds: float) -> Iterator[Callable[[], None]]:
    """Set the idle timeout of this thread's connection to ``seconds``, unless it is lower already.

    So the server ends the transaction of a worker that hangs. Otherwise its locks block other workers even after its
    leases have expired. Statements wait at most ``LOCK_WAIT`` seconds for a lock. Yields a function to call before
    each use of the connection.
    """
    seen: Any = None
    before: tuple[int, int] = (0, 0)

    def prepare() -> None:
        nonlocal seen, before
        connection: Any = connections[using]
        connection.mqueue_waits_briefly = True
        connection.ensure_connection()
        if connection.connection is seen:
            return
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@SESSION.wait_timeout, @@SESSION.innodb_lock_wait_timeout")
            idle_timeout, lock_wait = (int(value) for value in cursor.fetchone())
            _set(cursor, min(idle_timeout, math.ceil(seconds)), LOCK_WAIT)
        seen, before = connection.connection, (idle_timeout, lock_wait)

    try:
        yield prepare
    finally:
        connection: Any = connections[using]
        connection.mqueue_waits_briefly = False
        if seen is not None and connection.connection is seen:
            with suppress(DatabaseError), connection.cursor() as cursor:
                _set(cursor, *before)


def _set(cursor: Any, idle_timeout: int, lock_wait: int) -> None:
    cursor.execute(
        "SET SESSION wait_timeout = %s, SESSION innodb_lock_wait_timeout = %s", [idle_timeout, lock_wait]
    )


@contextmanager
def lock_waits_of_a_second(
    using: str, variables: Sequence[str] = ("lock_wait_timeout", "innodb_lock_wait_timeout")
) -> Iterator[None]:
    """Limit each wait for a row or a table to ``LOCK_WAIT`` seconds in this block. Do not retry lock wait timeouts.

    Even a plain SELECT waits for a table while ALTER TABLE waits for it, by default for days.
    """
    connection: Any = connections[using]
    before, setting = session.waits_briefly(using), ", ".join(f"SESSION {name} = %s" for name in variables)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(f'@@SESSION.{name}' for name in variables)}")
        values = [int(value) for value in cursor.fetchone()]
        cursor.execute(f"SET {setting}", [LOCK_WAIT] * len(values))
    raw, connection.mqueue_waits_briefly = connection.connection, True
    try:
        yield
    finally:
        connection.mqueue_waits_briefly = before
        if connection.connection is raw:
            with suppress(DatabaseError), connection.cursor() as cursor:
                cursor.execute(f"SET {setting}", values)


def short_lock_wait_timeout(using: str) -> AbstractContextManager[None]:
    """Limit each wait for a row to ``LOCK_WAIT`` seconds in this block. In a caller's transaction, change nothing.

    SKIP LOCKED does not help everywhere: an INSERT also waits for locks on the gap that it goes into. MariaDB allows 0
    seconds, but then the COMMIT after a SKIP LOCKED that skipped a row fails.
    """
    if session.in_transaction(using) or session.waits_briefly(using):
        return nullcontext()
    return lock_waits_of_a_second(using, ["innodb_lock_wait_timeout"])
