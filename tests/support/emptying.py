"""Empty the databases after a test that commits. The result is the same as with ``flush``, in a tenth of the time.

``flush`` spends most of its time on creating content types, permissions and the gate's rows again. This module keeps
these rows if they equal the rows that ``flush`` would create.
"""

from __future__ import annotations

from django.core.management.color import no_style
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TransactionTestCase

from django_mqueue.models import Offset
from django_mqueue.store import gates
from tests.support.threads import raw_connection
from tests.support.waiting import PATIENCE

KEPT = ("django_content_type", "auth_permission")
"""``migrate`` and ``flush`` create these rows from the installed apps alone."""

MANY = 20_000

FIRST_OFFSET = 10_000_001
"""The first offset of each test database. So an offset has eight digits, whatever ran in this database before."""

_BEGIN = f"ALTER TABLE queue_messages AUTO_INCREMENT = {FIRST_OFFSET}"

GATES = "copied_gates"
"""A copy of the gates' rows. To make them anew takes ten times as long."""
_IS_GATE = "consumer_group = '' AND topic = ''"

Made = tuple[tuple[int, int], ...]
_flushed: dict[str, Made] = {}
"""The rows of those tables after a flush, by database."""
_existing: dict[str, list[str]] = {}
"""The tables to empty, by database."""

_deleted: dict[str, set[str]] = {}
"""The package's tables whose rows were deleted since they were last truncated, by the alias of the database."""

_with_copied_gates: set[str] = set()

_flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]


def empty_quickly() -> None:
    """Replace the teardown of tests marked ``django_db(transaction=True)``. Other test cases still flush."""
    TransactionTestCase._fixture_teardown = _teardown  # type: ignore[attr-defined]


def empty_anew(connection: BaseDatabaseWrapper) -> None:
    """Truncate the package's tables before the first test. With ``--reuse-db``, an earlier run has deleted rows."""
    _note_deleted(connection.alias, _tables(connection))
    forget_deleted_rows()


def forget_deleted_rows() -> None:
    """Truncate the package's tables whose rows were deleted after earlier tests. For tests with locks, or of plans.

    The server removes deleted rows later. A statement that finds the deleted row of its key also locks the gap before
    it, and then blocks rows that the test does not mean. Deleted rows also count in the estimates of plans.
    """
    offsets = Offset._meta.db_table
    for alias, tables in _deleted.items():
        with raw_connection(alias) as connection:
            connection.execute(f"SET SESSION lock_wait_timeout = {PATIENCE:.0f}, foreign_key_checks = 0")
            if alias not in _with_copied_gates:
                connection.execute(f"DROP TABLE IF EXISTS {GATES}")
                connection.execute(f"CREATE TABLE {GATES} SELECT * FROM {offsets} WHERE {_IS_GATE}")
                _with_copied_gates.add(alias)
            for table in sorted({offsets, *tables}):
                connection.execute(f"TRUNCATE TABLE {table}")
            connection.execute(f"INSERT INTO {offsets} SELECT * FROM {GATES}")
            connection.execute(_BEGIN)
            connection.commit()
    _deleted.clear()


def _teardown(case: TransactionTestCase) -> None:
    aliases = sorted(case._databases_names(include_mirrors=False))  # type: ignore[attr-defined]
    plain = type(case).__module__ == "pytest_django.fixtures" and case.available_apps is None
    if (
        plain
        and not case.serialized_rollback
        and all(_is_as_flushed(connections[alias]) for alias in aliases)
    ):
        for alias in aliases:
            _empty(connections[alias])
        return
    for alias in aliases:
        _drop_many(connections[alias])
    _flush(case)
    for alias in aliases:
        _note_deleted(alias, _tables(connections[alias]))
    _flushed.update({_name(connections[alias]): _made(connections[alias]) for alias in aliases})


def _note_deleted(alias: str, tables: list[str]) -> None:
    _deleted.setdefault(alias, set()).update(
        name for name in tables if name.startswith(("queue_", "worklist_"))
    )


def _name(connection: BaseDatabaseWrapper) -> str:
    return f"{connection.alias} {connection.settings_dict['NAME']}"


def _made(connection: BaseDatabaseWrapper) -> Made:
    """Return the count and the highest id of the kept tables. A replaced row has a new id."""
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ALL ".join(f"SELECT COUNT(*), COALESCE(MAX(id), 0) FROM {name}" for name in KEPT)
        )
        return tuple((int(count), int(last)) for count, last in cursor.fetchall())


def _is_as_flushed(connection: BaseDatabaseWrapper) -> bool:
    before = _flushed.get(_name(connection))
    return before is not None and _made(connection) == before


def _empty(connection: BaseDatabaseWrapper) -> None:
    _drop_many(connection)
    offsets = Offset._meta.db_table
    tables = _tables(connection)
    filled = " UNION ALL ".join(f"(SELECT '{table}' FROM `{table}` LIMIT 1)" for table in tables)
    with connection.cursor() as cursor:
        cursor.execute(filled)
        tables = [table for (table,) in cursor.fetchall()]
    _note_deleted(connection.alias, tables)
    statements = connection.ops.sql_flush(no_style(), tables, reset_sequences=False, allow_cascade=False)
    rest = f"DELETE FROM {offsets} WHERE NOT ({_IS_GATE})"
    connection.ops.execute_sql_flush([rest, *statements])
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {offsets} WHERE {_IS_GATE}")
        if cursor.fetchone() != (gates.GATES * gates.SLOTS,):
            gates.ensure(cursor)


def _tables(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the tables to empty. The server is asked once for each database: its answer takes milliseconds."""
    if (name := _name(connection)) not in _existing:
        found = connection.introspection.django_table_names(only_existing=True, include_views=False)
        _existing[name] = [table for table in found if table not in (*KEPT, Offset._meta.db_table)]
    return _existing[name]


def _drop_many(connection: BaseDatabaseWrapper) -> None:
    """Truncate the tables if they have many rows. A DELETE of many rows would slow the next tests for seconds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT MAX(`offset`) - MIN(`offset`) FROM queue_messages")
        if int(cursor.fetchone()[0] or 0) < MANY:
            return
        for table in ("queue_messages", "queue_delivery_state", "queue_partition_leases"):
            cursor.execute(f"TRUNCATE TABLE {table}")
        cursor.execute(_BEGIN)
