"""The log read in bulk: many rows of a stretch of offsets, a page at a time; and how to cut such stretches.

A page is read to its end before it is handed on, so that no statement, and no read view, stays open however slowly
the reader works. The next page begins behind the last one's offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import MySQLdb.cursors
from django.db import connections

from . import log, session
from .dialect import marks
from .distinct import Names
from .session import Row

MESSAGES = {
    "topic": "m.topic",
    "partition": "m.partition_key",
    "key": "IF(ORD(m.partition_key) = 32, NULL, m.partition_key)",  # Keyless partitions begin with a blank.
    "offset": "m.`offset`",
    "id": "m.id",
    "target": "m.consumer_group",
    "kind": "JSON_VALUE(m.metadata, '$.kind')",
    "encoding": "JSON_VALUE(m.metadata, '$.encoding')",
    "headers": "CAST(JSON_EXTRACT(m.metadata, '$.headers') AS CHAR CHARACTER SET utf8mb4)",
    "payload": "m.payload",
    "created_at": "m.created_at",
    "published_at": "m.published_at",
    "retry_of": "IF(m.original_id IS NULL, NULL, CAST(JSON_VALUE(m.metadata, '$.retry.offset') AS SIGNED))",
    "first_published_at": (
        "IF(m.original_id IS NULL, NULL, CAST(JSON_VALUE(m.metadata, '$.retry.published_at') AS SIGNED))"
    ),
    "original_id": "m.original_id",
    "original_topic": "m.original_topic",
    "failed_group": "m.failed_group",
    "failed_at": "m.failed_at",
    "failure_count": "m.failure_count",
    "last_error": "m.last_error",
}
"""What can be read of a message, by the names that readers use."""

DELIVERIES = {
    "topic": "s.topic",
    "partition": "s.partition_key",
    "offset": "s.message_offset",
    "group": "s.consumer_group",
    "done": "s.acked",
    "in_flight": "s.in_flight",
    "redeliveries": "s.retry_count",
    "failure_count": "s.failure_count",
    "delivered_to": "s.delivered_to",
    "delivered_at": "s.delivered_at",
    "done_at": "s.acked_at",
    "due_at": "s.invisible_until",
    "errors": "CAST(s.errors AS CHAR CHARACTER SET utf8mb4)",
    "published_at": "m.published_at",  # The message's.
}
"""What can be read of a group's delivery state."""

FETCH = 64
"""Rows received between two looks at their size: 64 MiB of the largest payloads, as the setting has it."""

HEAVY = frozenset({"payload", "headers", "last_error", "errors"})
LIGHT = 200
"""Bytes that all other columns of a row are taken to have."""


def topics(using: str, like: str | None = None) -> set[str]:
    """All topics that hold a message or were ever registered for; ``like``: only this one."""
    only, params = ("= %s", [like]) if like is not None else ("> ''", [])
    stored = Names("queue_messages", "queue_messages_tail", "topic", "topic")
    found = stored.all(using) if like is None else [like] if log.newest(using, like) else []
    rows = session.fetch(
        using,
        "SELECT topic FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
        f" WHERE consumer_group = '' AND topic {only} AND partition_key = ''",
        params,
    )
    return {*found, *(str(topic) for (topic,) in rows)}


def nth_above(
    using: str, topic: str, above: int, upto: int, number: int, targets: Sequence[str] | None
) -> int | None:
    """The offset of the ``number``-th row above an offset, from the index alone; None where there are fewer."""
    rows = session.fetch(
        using,
        "SELECT m.`offset` FROM queue_messages m FORCE INDEX (queue_messages_tail)"
        f" WHERE m.topic = %s AND m.`offset` > %s AND m.`offset` <= %s{_only(targets)}"
        f" ORDER BY m.`offset` LIMIT 1 OFFSET {number - 1:d}",
        [topic, above, upto, *(targets or ())],
    )
    return int(rows[0][0]) if rows else None


def count(using: str, topic: str, above: int, upto: int, targets: Sequence[str] | None) -> int:
    """How many rows there are between two offsets. Goes through them: for stretches known to be short."""
    rows = session.fetch(
        using,
        "SELECT COUNT(*) FROM queue_messages m FORCE INDEX (queue_messages_tail)"
        f" WHERE m.topic = %s AND m.`offset` > %s AND m.`offset` <= %s{_only(targets)}",
        [topic, above, upto, *(targets or ())],
    )
    return int(rows[0][0])


def messages(
    using: str,
    columns: Sequence[str],
    topic: str,
    above: int,
    upto: int,
    targets: Sequence[str] | None,
    limit: int,
    budget: int,
    *,
    dense: bool,
) -> tuple[list[Row], int]:
    """The next rows of a topic, the offset first and then ``columns``; and their size in bytes, about.

    At most ``limit`` rows, and no more than about ``budget`` bytes. ``dense``: most rows of the whole log between these
    offsets are the topic's, and are read as they lie.
    """
    index = "PRIMARY" if dense else "queue_messages_tail"
    wanted = ", ".join(["m.`offset`", *(MESSAGES[name] for name in columns)])
    return _page(
        using,
        columns,
        f"SELECT {wanted} FROM queue_messages m FORCE INDEX ({index})"
        f" WHERE m.topic = %s AND m.`offset` > %s AND m.`offset` <= %s{_only(targets)}"
        f" ORDER BY m.`offset` LIMIT {limit:d}",
        [topic, above, upto, *(targets or ())],
        budget,
    )


def deliveries(
    using: str, columns: Sequence[str], topic: str, group: str, above: int, upto: int, limit: int, budget: int
) -> tuple[list[Row], int]:
    """The same of what a group has done with the messages between two offsets; without those it was never given."""
    wanted = ", ".join(["m.`offset`", *(DELIVERIES[name] for name in columns)])
    return _page(
        using,
        columns,
        f"SELECT {wanted} FROM queue_messages m FORCE INDEX (queue_messages_tail)"
        " STRAIGHT_JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = %s AND s.topic = m.topic"
        " AND s.partition_key = m.partition_key AND s.message_offset = m.`offset`"
        f" WHERE m.topic = %s AND m.`offset` > %s AND m.`offset` <= %s ORDER BY m.`offset` LIMIT {limit:d}",
        [group, topic, above, upto],
        budget,
    )


def _only(targets: Sequence[str] | None) -> str:
    """Only rows for these groups ('': for all); None: every row."""
    return "" if targets is None else f" AND m.consumer_group IN ({marks(targets)})"


def _page(
    using: str, columns: Sequence[str], sql: str, params: Sequence[Any], budget: int
) -> tuple[list[Row], int]:
    connection = connections[using]
    connection.ensure_connection()
    heavy = [place for place, name in enumerate(columns, 1) if name in HEAVY]
    rows: list[Row] = []
    size = 0
    with connection.wrap_database_errors:
        cursor = connection.connection.cursor(MySQLdb.cursors.SSCursor)
        cursor.execute(sql, params)
        while some := cursor.fetchmany(FETCH):
            rows += some
            size += LIGHT * len(some) + sum(len(row[place] or "") for place in heavy for row in some)
            if size > budget:
                # What is left unread would have to be received first: a new connection is cheaper.
                connection.close()
                return rows, size
        cursor.close()
    return rows, size
