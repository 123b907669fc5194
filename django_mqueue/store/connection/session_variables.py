"""Variables of a session that the queue sets for a time: timeouts, autocommit, the program's name, a test's clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import MySQLdb
from django.db import DatabaseError, Error, connections
from django.db.backends.signals import connection_created

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


@contextmanager
def lazy_autocommit(using: str, own_hooks: int = 0) -> Iterator[None]:
    """Turn autocommit on only before the next statement outside a transaction, for this thread's connection.

    Django sends ``SET autocommit`` before and after each transaction. Between two transactions, both statements are
    left out. The client library knows the server's state from the server's last response.

    ``own_hooks``: how many commit hooks of each transaction send no statement. Autocommit is turned on before
    other hooks run. If ``own_hooks`` is not 0, it is also turned on after a rollback, because other code may run then.
    """
    connection: Any = connections[using]
    send = connection._set_autocommit

    def is_on() -> bool:
        with connection.wrap_database_errors:
            return bool(connection.connection.get_autocommit())

    def set_autocommit(autocommit: bool) -> None:
        if autocommit != is_on() and not (autocommit and len(connection.run_on_commit) == own_hooks):
            send(autocommit)

    def turn_on() -> None:
        if connection.connection is not None and connection.autocommit and not is_on():
            send(True)

    def turn_on_first(execute: Callable[..., Any], *arguments: Any) -> Any:
        turn_on()
        return execute(*arguments)

    connection._set_autocommit = set_autocommit
    try:
        with connection.execute_wrapper(turn_on_first):
            yield
    finally:
        del connection._set_autocommit
        with suppress(Error):  # The connection is lost.
            turn_on()


PROGRAM = "mqueue_program"
"""The user variable with the name of this program, which ``mqueue blockers`` shows.

mysqlclient cannot set connection attributes: it has no argument for ``mysql_options4``. Both servers show user
variables in the performance schema.
"""
_LENGTH_MAX = 255


@contextmanager
def named_sessions(using: str, program: str) -> Iterator[None]:
    """Set the variable in this thread's session, and in each that this process opens to the database in this block.

    It costs one statement for each connection.
    """
    place = _place(connections[using])

    def set_variable(*, connection: Any, **kwargs: object) -> None:
        if connection.connection is None or connection.vendor != "mysql" or _place(connection) != place:
            return
        # Not Django's cursor: the statement is not part of what the caller does with the connection.
        with suppress(MySQLdb.Error), connection.connection.cursor() as cursor:
            cursor.execute(f"SET @{PROGRAM} = %s", [program[:_LENGTH_MAX]])

    connection_created.connect(set_variable, weak=False)
    try:
        set_variable(connection=connections[using])
        yield
    finally:
        connection_created.disconnect(set_variable)


def _place(connection: Any) -> tuple[object, ...]:
    settings = connection.settings_dict
    return tuple(settings[name] for name in ("HOST", "PORT", "NAME"))


@contextmanager
def moved_clock(using: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that sets this connection's time in epoch milliseconds, for tests.

    The clock does not advance after that. When the block ends, the connection has the server's time again.
    """

    def move(ms: int) -> None:
        with connections[using].cursor() as cursor:
            cursor.execute(f"SET timestamp = {ms / 1000:.3f}")

    try:
        yield move
    finally:
        # Not by Django's cursor: it refuses statements after an error in a transaction.
        if (raw := connections[using].connection) is not None:
            with suppress(MySQLdb.Error):  # The session is lost, and so is its clock.
                raw.query("SET timestamp = DEFAULT")
