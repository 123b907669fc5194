"""Messages that are published during the backfill of their group: find them, and replace them by copies at the tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from ...store.connection.dialect import NOW_MS, flat, marks, union
from ...store.connection.session import Row


@dataclass(frozen=True)
class Native:
    """A message of the log that a group has not acknowledged, and that is no copy. ``begun``: it has delivery state."""

    offset: int
    partition: str
    size: int
    begun: bool


_COPY = "(m.consumer_group <> '' AND m.original_id IS NOT NULL)"
"""True for copies, which have the ids of their originals. The group has no redriven messages yet, which have them too.
"""


def natives(
    cursor: CursorWrapper, topic: str, group: str, above: int, upto: int | None, limit: int
) -> list[Native]:
    """Return the first ``limit`` messages for the group above an offset that it has not acknowledged; no copies.

    All come from one statement. So if a message was committed before another was sent, and the statement finds the
    second, it also finds the first.
    """
    end, params = (" AND m.`offset` <= %s", [upto]) if upto is not None else ("", [])
    cursor.execute(
        "SELECT m.`offset`, m.partition_key, LENGTH(m.payload) + LENGTH(m.metadata), s.acked IS NOT NULL"
        " FROM queue_messages m FORCE INDEX (queue_messages_tail)"
        " LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = %s AND s.topic = m.topic"
        " AND s.partition_key = m.partition_key AND s.message_offset = m.`offset`"
        f" WHERE m.topic = %s AND m.`offset` > %s{end} AND m.consumer_group IN ('', %s) AND NOT {_COPY}"
        f" AND (s.acked IS NULL OR s.acked = 0) ORDER BY m.`offset` LIMIT {limit:d}",
        [group, topic, above, *params, group],
    )
    return [
        Native(int(offset), name, int(size), bool(begun)) for offset, name, size, begun in cursor.fetchall()
    ]


def last_copies(cursor: CursorWrapper, topic: str, group: str, partitions: Sequence[str]) -> dict[str, int]:
    """Return the offset of each partition's newest copy. Partitions without a copy are missing from the result."""
    branch = (
        "SELECT m.partition_key, m.`offset` FROM queue_messages m FORCE INDEX (queue_messages_partition)"
        f" WHERE m.topic = %s AND m.partition_key = %s AND m.consumer_group = %s AND {_COPY}"
        " ORDER BY m.`offset` DESC LIMIT 1"
    )
    cursor.execute(
        union(branch, len(partitions)), flat([topic, partition, group] for partition in partitions)
    )
    return {name: int(offset) for name, offset in cursor.fetchall()}


def contents(cursor: CursorWrapper, offsets: Sequence[int]) -> list[Row]:
    """Return (offset, partition, id, payload, metadata, publication time) of messages, in offset order."""
    cursor.execute(
        "SELECT `offset`, partition_key, id, payload, metadata, published_at FROM queue_messages"
        f" FORCE INDEX (PRIMARY) WHERE `offset` IN ({marks(offsets)}) ORDER BY `offset`",
        list(offsets),
    )
    return list(cursor.fetchall())


def finish(cursor: CursorWrapper, group: str, topic: str, messages: Sequence[tuple[str, int]]) -> None:
    """Acknowledge messages, given as (partition, offset). The INSERT fails if one has delivery state."""
    one = f"(%s, %s, %s, %s, 1, 0, {NOW_MS}, 0, 0, 0, 0, 0, '', {NOW_MS}, {NOW_MS})"
    cursor.execute(
        "INSERT INTO queue_delivery_state (consumer_group, topic, partition_key, message_offset, acked, in_flight,"
        " invisible_until, retry_count, failure_count, delivery_token, handed, alone, delivered_to, delivered_at,"
        f" acked_at) VALUES {', '.join([one] * len(messages))}",
        flat([group, topic, *each] for each in messages),
    )
