"""Run statements of the queue in a caller's transaction, on MariaDB with snapshot isolation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import Error
from django.db.backends.base.base import BaseDatabaseWrapper

VARIABLE = "innodb_snapshot_isolation"
WITHOUT_SNAPSHOTS = ("read committed", "read uncommitted")


@contextmanager
def latest_rows(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Let the statements in this block lock and write what is committed now, as MySQL does at every isolation level.

    With ``innodb_snapshot_isolation`` (MariaDB 11.6.2), a transaction at REPEATABLE READ fails with error 1020 if it
    locks a row that has changed since its first read. So a lease's renewal would make an ack fail. The queue does not
    need this check, because it compares tokens.
    """
    if not _fails_on_changes(connection):
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION {VARIABLE} = OFF")
    raw = connection.connection
    try:
        yield
    finally:
        if connection.connection is raw:
            # A raw cursor, because Django refuses statements in a transaction that can only be rolled back.
            with suppress(Error, raw.Error), raw.cursor() as cursor:
                cursor.execute(f"SET SESSION {VARIABLE} = ON")


def _fails_on_changes(connection: Any) -> bool:
    """Return whether snapshot isolation is on, and the isolation level uses snapshots. Query each connection once."""
    if not getattr(connection, "mysql_is_mariadb", False) or connection.isolation_level in WITHOUT_SNAPSHOTS:
        return False
    checked, fails = getattr(connection, "_mqueue_snapshot", (None, False))
    if checked is None or checked is not connection.connection:
        with connection.cursor() as cursor:
            cursor.execute("SHOW SESSION VARIABLES WHERE Variable_name = %s", [VARIABLE])
            row = cursor.fetchone()  # None: the server is too old to have it.
        fails = row is not None and str(row[1]) == "ON"
        connection._mqueue_snapshot = (connection.connection, fails)
    return bool(fails)
