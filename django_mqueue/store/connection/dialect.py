"""Differences between MySQL and MariaDB, and SQL that all statements share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connections

NOW_MS = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"
"""The only clock: the database's time in epoch milliseconds. It is UTC, because local time is ambiguous when summer
time ends."""

GROUP_ROW = (
    "FORCE INDEX (queue_offsets_partition) WHERE consumer_group = %s AND topic = %s AND partition_key = ''"
)
"""Selects a group's registration in ``queue_offsets``. Parameters: the group and the topic."""
TOPIC_ROW = GROUP_ROW.replace("%s", "''", 1)
"""Selects the topic's own row. Parameter: the topic."""

STATE_OF_MESSAGE = (
    "queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = %s AND s.topic = m.topic"
    " AND s.partition_key = m.partition_key AND s.message_offset = m.`offset`"
)
"""Joins the delivery state of message ``m``. Parameter: the group."""

IN_TOPIC = "FROM queue_messages FORCE INDEX (queue_messages_tail) WHERE topic = %s"
"""Selects the rows of a topic by an index in offset order. Parameter: the topic."""

CHARSET = "utf8mb4"
"""The only connection charset that can represent every key, id and payload."""

SSL_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
"""Values of mysqlclient's ``ssl_mode``."""


def is_mariadb(using: str) -> bool:
    return bool(getattr(connections[using], "mysql_is_mariadb", False))


def for_share(using: str, locked: str = "SKIP LOCKED") -> str:
    """Return the clause that locks rows in share mode, and skips rows that another transaction has locked.

    ``locked``: ``"NOWAIT"`` raises an error for such rows instead (``errors.is_locked``).
    """
    return f"{'LOCK IN SHARE MODE' if is_mariadb(using) else 'FOR SHARE'} {locked}"


def placeholders(values: Sequence[Any]) -> str:
    """Return placeholders for an IN list. Raises ``ValueError`` for an empty list, which the server would refuse."""
    if not values:
        raise ValueError("an IN list needs a value")
    return ", ".join(["%s"] * len(values))


def int_list(values: Iterable[int]) -> str:
    """Return the text of an IN list of whole numbers. The driver takes far longer to insert them as parameters."""
    return ", ".join([f"{value:d}" for value in values])


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
    """Return a derived table with the column ``partition_key``. Its one parameter is a JSON list of names."""
    column = "partition_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    return f"JSON_TABLE(%s, '$[*]' COLUMNS ({column} PATH '$')) {name}"


def numbers_table(name: str, column: str) -> str:
    """Return a derived table with one column. Its one parameter is a JSON list of integers, of any length."""
    return f"JSON_TABLE(%s, '$[*]' COLUMNS ({column} BIGINT PATH '$')) {name}"
