"""Transactions of the queue: at READ COMMITTED, short, and retried if the server asks for it."""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from ... import instruments
from ...exceptions import NotMigrated
from ...policy.batching import batches
from . import errors
from .dialect import CHARSET, flat, union

Result = TypeVar("Result")
Work = Callable[[CursorWrapper], Result]
Row = tuple[Any, ...]

ATTEMPTS = 10
_SNAPSHOT_ISOLATION = "innodb_snapshot_isolation"
WITHOUT_SNAPSHOTS = ("read committed", "read uncommitted")
BRANCHES = 50
"""The maximum number of topics or groups in one statement."""


def in_transaction(using: str) -> bool:
    """Return whether the caller has a transaction open, by ``atomic`` or by autocommit turned off."""
    connection = connections[using]
    if connection.connection is None:
        # Not connected, and perhaps there is no server: the settings determine the answer.
        return connection.in_atomic_block or not connection.settings_dict["AUTOCOMMIT"]
    return connection.in_atomic_block or not connection.get_autocommit()


def in_own_transaction(using: str) -> bool:
    """Return ``in_transaction``, without the transactions in which Django's ``TestCase`` runs each test.

    Django's own check of ``atomic(durable=True)`` ignores the same blocks. So tests find a missing transaction.
    """
    if not in_transaction(using):
        return False
    blocks = connections[using].atomic_blocks
    return not blocks or any(not getattr(block, "_from_testcase", False) for block in blocks)


def waits_briefly(using: str) -> bool:
    """Return whether lock waits of this thread's connection are short and not retried, as in a worker's loop."""
    return getattr(connections[using], "mqueue_waits_briefly", False)


def calls_hooks(using: str) -> bool:
    """Return whether Django calls ``on_commit`` hooks when, and only when, the caller's transaction commits."""
    connection = connections[using]
    return connection.in_atomic_block and connection.commit_on_exit


@contextmanager
def latest_rows(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Let the statements in this block lock and write what is committed now, as MySQL does at every isolation level.

    With ``innodb_snapshot_isolation`` (MariaDB 11.6.2), a transaction at REPEATABLE READ fails if it locks a row that
    has changed since its first read (``errors.RECORD_CHANGED``). So a lease's renewal would make an ack fail.
    The queue does not need this check, because it compares tokens.
    """
    if not _fails_on_changes(connection):
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION {_SNAPSHOT_ISOLATION} = OFF")
    raw = connection.connection
    try:
        yield
    finally:
        if connection.connection is raw:
            # A raw cursor, because Django refuses statements in a transaction that can only be rolled back.
            with suppress(Error, raw.Error), raw.cursor() as cursor:
                cursor.execute(f"SET SESSION {_SNAPSHOT_ISOLATION} = ON")


def _fails_on_changes(connection: Any) -> bool:
    """Return whether snapshot isolation is on, and the isolation level uses snapshots. Query each connection once."""
    if not getattr(connection, "mysql_is_mariadb", False) or connection.isolation_level in WITHOUT_SNAPSHOTS:
        return False
    checked, fails = getattr(connection, "_mqueue_snapshot", (None, False))
    if checked is None or checked is not connection.connection:
        with connection.cursor() as cursor:
            cursor.execute("SHOW SESSION VARIABLES WHERE Variable_name = %s", [_SNAPSHOT_ISOLATION])
            row = cursor.fetchone()  # None: the server is too old to have it.
        fails = row is not None and str(row[1]) == "ON"
        connection._mqueue_snapshot = (connection.connection, fails)
    return bool(fails)


def run(using: str, work: Work[Result], *, level: str = "READ COMMITTED") -> Result:
    """Run ``work(cursor)`` in a transaction, and return its result. Retry it after a deadlock or a lock wait timeout.

    In a caller's transaction, the work joins it: ``level`` has no effect, and nothing is retried, because a deadlock
    rolls back all of it. ``level``: the isolation level. Raises the server's last error.
    """
    connection = connections[using]
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
            _again(using, error, attempt)
    raise AssertionError("unreachable")


@contextmanager
def closes_half_ended(using: str) -> Iterator[None]:
    """Close the connection if a transaction that began in this block ended only partly."""
    connection, joined = connections[using], in_transaction(using)
    try:
        yield
    except Error as error:
        _note_lost(using, error)
        if not joined:
            _close_half_ended(connection)
        raise


def _close_half_ended(connection: BaseDatabaseWrapper) -> None:
    """Close a connection that was lost between a COMMIT and Django's return to autocommit."""
    if connection.connection is not None and not connection.in_atomic_block and not connection.autocommit:
        connection.close()


def fetch(using: str, sql: str, params: Sequence[Any] = ()) -> list[Row]:
    """Run one reading statement, and return all its rows. In ``cached_queries``, a repeated statement is not run."""

    def work(cursor: CursorWrapper) -> list[Row]:
        cursor.execute(sql, params)
        return list(cursor.fetchall())

    cached = _cached_rows.get()
    if cached is None:
        return run_statement(using, work, locks=False)
    key = (using, sql, tuple(params))
    if key not in cached:
        cached[key] = run_statement(using, work, locks=False)
    return list(cached[key])


def database_name(using: str) -> str:
    """Return the name of a connection's database."""
    return str(fetch(using, "SELECT DATABASE()")[0][0])


def fetch_each(
    using: str, query: str, params: Sequence[Sequence[Any]], at_once: int = BRANCHES
) -> list[list[Sequence[Any]]]:
    """Run the query for each list of parameters. Return the rows of each, without their first column.

    The first column and first parameter of the query are the number of the list.
    """
    found: list[list[Sequence[Any]]] = [[] for _ in params]
    for some in batches([*enumerate(params)], at_once):
        numbered = flat([number, *values] for number, values in some)
        for number, *row in fetch(using, union(query, len(some)), numbered):
            found[int(number)].append(row)
    return found


_cached_rows: ContextVar[dict[tuple[Any, ...], list[Row]] | None] = ContextVar("cached_rows", default=None)


@contextmanager
def cached_queries() -> Iterator[None]:
    """Let ``fetch`` run each statement once in this block, for pages whose parts repeat queries."""
    if _cached_rows.get() is not None:
        yield
        return
    token = _cached_rows.set({})
    try:
        yield
    finally:
        _cached_rows.reset(token)


def run_statement(using: str, work: Work[Result], *, latest: bool = False, locks: bool = True) -> Result:
    """Run ``work(cursor)``, which is one statement. It commits by itself, or joins the caller's transaction.

    After an error, Django refuses further statements in the caller's transaction, as with ``run``. ``locks``: False if
    the statement takes no locks; its errors do not have this effect. ``latest``: in a caller's transaction, use
    ``latest_rows``, because the statement locks rows that other transactions change.
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
                # After a deadlock the server has rolled back everything. This makes Django refuse the next statement.
                with transaction.atomic(using=using, savepoint=False):
                    raise
            if joined:
                raise
            _again(using, error, attempt)
    raise AssertionError("unreachable")


def _cursor(connection: Any) -> CursorWrapper:
    """Return a cursor. Raise ``ImproperlyConfigured`` if the connection's charset cannot represent every key.

    Each connection is checked once, without a statement: the client library knows the charset.
    """
    cursor: CursorWrapper = connection.cursor()
    raw = connection.connection
    if getattr(connection, "_mqueue_charset_of", None) is not raw:
        name = raw.character_set_name() if connection.vendor == "mysql" else CHARSET
        if name != CHARSET:
            cursor.close()
            raise ImproperlyConfigured(
                f"the connection to database {connection.alias!r} uses the charset {name}, which cannot represent"
                f" every key: messages of such a key would not be delivered. Set 'charset': '{CHARSET}' in the"
                f" OPTIONS of DATABASES[{connection.alias!r}]"
            )
        connection._mqueue_charset_of = raw
    return cursor


_lost: dict[str, object] = {}
"""For each database, an object that is replaced after each failure of a connection."""
_moved: dict[str, object] = {}
"""The same for failures after which the database may be on another server."""


def last_move(using: str) -> object:
    """Return an object that is another one each time the database may have moved to another server (a failover)."""
    return _moved.get(using)


def _note_lost(using: str, error: Error) -> None:
    """Record a lost connection. A server that refuses statements counts: a failover may have made it a replica."""
    if errors.is_temporary(error) and not errors.is_retriable(error):
        _lost[using] = object()
    if errors.is_lost(error) or errors.is_read_only(error):
        _moved[using] = object()


def _again(using: str, error: Error, attempt: int) -> None:
    """Wait for a random, growing time; or raise the error. Do not retry short lock waits."""
    if not errors.is_retriable(error) or attempt == ATTEMPTS:
        raise error
    if errors.is_lock_wait(error) and waits_briefly(using):
        raise error
    instruments.record(instruments.TRANSACTIONS_RETRIED, 1, errors.retry_reason(error))
    time.sleep(min(0.002 * 2**attempt, 0.5) * random.random())


@contextmanager
def raises_not_migrated(using: str) -> Iterator[None]:
    """Raise ``NotMigrated`` if the database was not migrated, or if its gate rows were deleted."""
    try:
        yield
    except DatabaseError as error:
        if errors.is_not_migrated(error):
            raise NotMigrated(using) from error
        raise


class Watched:
    """Detects a connection of this thread that ``note`` has not recorded. It may lead to another server."""

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
        """Return whether a connection to the database has failed since the last ``note``."""
        return _lost.get(self.using) is not self._lost

    def _now(self) -> Any:
        connection = connections[self.using]
        connection.ensure_connection()
        return connection.connection


def discard(using: str) -> None:
    """Close a connection that failed, so that the next use opens a new one. Does nothing inside ``atomic``."""
    connection = connections[using]
    if not connection.in_atomic_block:
        connection.close()
