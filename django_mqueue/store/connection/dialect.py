"""Differences between MySQL and MariaDB, and SQL that all statements share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connections

NOW_MS = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"
"""The only clock: the database's time in epoch milliseconds. It is UTC, because local time is ambiguous when summer
time ends."""

DEADLOCK, LOCK_WAIT_TIMEOUT, RECORD_CHANGED = 1213, 1205, 1020
RETRIABLE = frozenset({DEADLOCK, LOCK_WAIT_TIMEOUT, RECORD_CHANGED})
"""Errors that roll back the statement or transaction, which may succeed when it is repeated. 1020: with snapshot
isolation, MariaDB found a row that has changed since the snapshot."""

LOCKED = frozenset({LOCK_WAIT_TIMEOUT, 3572})
"""Errors of a NOWAIT statement at a row that another transaction has locked: MariaDB's and MySQL's."""

CHARSET = "utf8mb4"
"""The only connection charset that can represent every key, id and payload."""

DUPLICATE_ENTRY = 1062

NULL = 1048

NO_GATE = frozenset({NULL, 3819, 4025})
"""Errors of an INSERT whose gate row is missing: the topic is NULL, or the check constraint fails (MySQL, MariaDB)."""

NO_TABLE = 1146

NO_SSL = 2026
SSL_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
"""Values of mysqlclient's ``ssl_mode``."""

UNKNOWN_HOST = 2005

PERHAPS_MISTAKEN = frozenset({UNKNOWN_HOST, NO_SSL})
"""Errors that a restarting container or a proxy causes for a while, and that wrong settings cause always."""

LOST = PERHAPS_MISTAKEN | {1053, 1152, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2006, 2013, 2055, 3032, 4031}
"""Errors of a lost connection, or of a server that is gone or has not started. 3032: MySQL is offline and has closed
all connections except administrators' connections. 4031: it closed this connection, which was idle for too long."""

_FULL = {
    3,
    28,
    1021,
    1026,
    1030,
    1114,
    1467,
    1878,
}  # 1467: there is no space to store the next AUTO_INCREMENT value.
_READ_ONLY = {1290, 1792, 1836}
_TOO_MANY = {1037, 1038, 1040, 1041, 1135, 1203, 1206, 1226, 1637}
_ENDED = {1317, 1969, 3024}

NOT_REPLICATED = frozenset({3100, 3101})
"""Errors of a COMMIT that the replication group did not accept. The transaction is rolled back on this server. If the
server leaves the group at this moment, it may have sent the transaction before; then the other servers commit it."""

REFUSED = NOT_REPLICATED | _FULL | _READ_ONLY | _TOO_MANY | _ENDED
"""Errors of a server that cannot run the statement now, and has changed nothing. Its disk is full, it is read-only (a
failover), or it has too many connections or too few resources. Or the statement was killed, or the COMMIT was not
replicated."""


def is_mariadb(using: str) -> bool:
    return bool(getattr(connections[using], "mysql_is_mariadb", False))


def sharing(using: str) -> str:
    """Return the clause that locks rows in share mode and skips rows that another transaction has locked."""
    return "LOCK IN SHARE MODE SKIP LOCKED" if is_mariadb(using) else "FOR SHARE SKIP LOCKED"


def upsert(using: str) -> str:
    """Return the SQL between VALUES and the assignments of an upsert that uses ``fresh``."""
    return "ON DUPLICATE KEY UPDATE" if is_mariadb(using) else "AS fresh ON DUPLICATE KEY UPDATE"


def fresh(using: str, column: str) -> str:
    """Return the SQL for the new row's value of a column in an upsert."""
    return f"VALUES({column})" if is_mariadb(using) else f"fresh.{column}"


def marks(values: Sequence[Any]) -> str:
    """Return placeholders for an IN list. Raises ``ValueError`` for an empty list, which the server would refuse."""
    if not values:
        raise ValueError("an IN list needs a value")
    return ", ".join(["%s"] * len(values))


def union(branch: str, count: int) -> str:
    """Return a UNION ALL of ``count`` copies of a branch. Each copy keeps its ORDER BY and LIMIT."""
    return " UNION ALL ".join([f"({branch})"] * count)


def flat(parts: Iterable[Iterable[Any]]) -> list[Any]:
    return [value for part in parts for value in part]


def values_table(columns: Sequence[str], count: int) -> str:
    """Return a derived table of ``count`` rows of placeholders, to join with. Both servers accept this form."""
    first = ", ".join(f"%s AS {column}" for column in columns)
    more = " UNION ALL SELECT " + ", ".join(["%s"] * len(columns))
    return f"(SELECT {first}{more * (count - 1)})"


def names_table(name: str) -> str:
    """Return a derived table with the column ``partition_key``. Its one parameter is a JSON list of names, of any
    length.
    """
    column = "partition_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    return f"JSON_TABLE(%s, '$[*]' COLUMNS ({column} PATH '$')) {name}"


def numbers_table(name: str, column: str) -> str:
    """Return a derived table with one column. Its one parameter is a JSON list of integers, of any length."""
    return f"JSON_TABLE(%s, '$[*]' COLUMNS ({column} BIGINT PATH '$')) {name}"
