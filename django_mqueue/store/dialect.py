"""Where the two servers differ, and SQL that every statement shares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connections

NOW_MS = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"
"""The one clock: the database's, in UTC (local time is ambiguous when summer time ends), epoch milliseconds."""

DEADLOCK, LOCK_WAIT_TIMEOUT, RECORD_CHANGED = 1213, 1205, 1020
RETRIABLE = frozenset({DEADLOCK, LOCK_WAIT_TIMEOUT, RECORD_CHANGED})
"""Failures that undo the statement or transaction and succeed when it is run again. 1020: MariaDB's snapshot
isolation found a row changed since the snapshot."""

LOCKED = frozenset({LOCK_WAIT_TIMEOUT, 3572})
"""What a statement with NOWAIT meets at a row that another transaction has locked: MariaDB's, MySQL's."""

CHARSET = "utf8mb4"
"""The only charset of a connection in which each key, id and payload can be written."""

DUPLICATE_ENTRY = 1062

NULL = 1048

NO_GATE = frozenset({NULL, 3819, 4025})
"""What an INSERT meets whose gate row is missing: topic NULL, or its check (MySQL's, MariaDB's)."""

NO_TABLE = 1146

NO_SSL = 2026
SSL_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
"""Values of mysqlclient's ``ssl_mode``."""

UNKNOWN_HOST = 2005

PERHAPS_MISTAKEN = frozenset({UNKNOWN_HOST, NO_SSL})
"""A container that is started again, or a proxy, is met so; so is a mistake in the settings, for ever."""

LOST = PERHAPS_MISTAKEN | {1053, 1152, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2006, 2013, 2055, 3032, 4031}
"""The connection or the server is gone, or not there yet. 3032: MySQL is offline, and has ended all connections but
administrators'. 4031: it ended this one for being silent too long."""

_FULL = {
    3,
    28,
    1021,
    1026,
    1030,
    1114,
    1467,
    1878,
}  # 1467: there is no room to note which row number comes next.
_READ_ONLY = {1290, 1792, 1836}
_TOO_MANY = {1037, 1038, 1040, 1041, 1135, 1203, 1206, 1226, 1637}
_ENDED = {1317, 1969, 3024}

NOT_REPLICATED = frozenset({3100, 3101})
"""The replication group took no COMMIT of this server: the transaction is rolled back here. If the server leaves the
group at this moment, it may have sent it before, and the others commit it all the same."""

REFUSED = NOT_REPLICATED | _FULL | _READ_ONLY | _TOO_MANY | _ENDED
"""The server cannot do it now, and has done nothing: its disk is full, it is read-only (a failover), it has too many
connections or too little of something else, somebody ended the statement, or its replication group took no COMMIT."""


def is_mariadb(using: str) -> bool:
    return bool(getattr(connections[using], "mysql_is_mariadb", False))


def sharing(using: str) -> str:
    """Lock rows in share mode, and skip those that another transaction has locked."""
    return "LOCK IN SHARE MODE SKIP LOCKED" if is_mariadb(using) else "FOR SHARE SKIP LOCKED"


def upsert(using: str) -> str:
    """What stands between VALUES and the assignments of an upsert that names the new row's values."""
    return "ON DUPLICATE KEY UPDATE" if is_mariadb(using) else "AS fresh ON DUPLICATE KEY UPDATE"


def fresh(using: str, column: str) -> str:
    """The new row's value of a column in an upsert."""
    return f"VALUES({column})" if is_mariadb(using) else f"fresh.{column}"


def marks(values: Sequence[Any]) -> str:
    """Placeholders for an IN list. Raises ``ValueError`` for none: the server would refuse it."""
    if not values:
        raise ValueError("an IN list needs a value")
    return ", ".join(["%s"] * len(values))


def union(branch: str, count: int) -> str:
    """``count`` times the same branch; each keeps its own ORDER BY and LIMIT."""
    return " UNION ALL ".join([f"({branch})"] * count)


def flat(parts: Iterable[Iterable[Any]]) -> list[Any]:
    return [value for part in parts for value in part]


def values_table(columns: Sequence[str], count: int) -> str:
    """A derived table of ``count`` rows of placeholders, to join with: both servers' common way to write one."""
    first = ", ".join(f"%s AS {column}" for column in columns)
    more = " UNION ALL SELECT " + ", ".join(["%s"] * len(columns))
    return f"(SELECT {first}{more * (count - 1)})"


def names_table(name: str) -> str:
    """A derived table with the column ``partition_key``, of one placeholder: a JSON list of names, however long."""
    column = "partition_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    return f"JSON_TABLE(%s, '$[*]' COLUMNS ({column} PATH '$')) {name}"


def numbers_table(name: str, column: str) -> str:
    """A derived table made of one placeholder: a JSON list of whole numbers, however long."""
    return f"JSON_TABLE(%s, '$[*]' COLUMNS ({column} BIGINT PATH '$')) {name}"
