"""The history of one message in all tables. Each statement reads a bounded number of rows by index."""

from __future__ import annotations

from typing import Any

from ..connection import session
from .message_pages import STATE_COLUMNS, LogEntry

STATE = (
    "s.acked, s.in_flight, s.invisible_until, s.retry_count, s.failure_count, s.handed, s.delivered_to,"
    " s.delivered_at, s.acked_at, s.errors"
)
GROUP_COLUMNS = ("group", "start", "paused", "done_to", *STATE_COLUMNS[:-2])


def origin(using: str, offset: int) -> tuple[str, str | None, int] | None:
    """Return (topic, original topic of a dead letter, creation time) of the row at an offset, or None."""
    rows = session.fetch(
        using,
        "SELECT topic, original_topic, created_at FROM queue_messages FORCE INDEX (PRIMARY) WHERE `offset` = %s",
        [offset],
    )
    return (rows[0][0], rows[0][1], int(rows[0][2])) if rows else None


def group_states(using: str, topic: str, partition: str, offset: int, limit: int) -> list[dict[str, Any]]:
    """Return the first ``limit`` groups of a topic, by name, with the delivery state of a message.

    Each is a mapping by ``GROUP_COLUMNS``.
    """
    rows = session.fetch(
        using,
        f"SELECT r.consumer_group, r.offset_acked, r.paused, COALESCE(o.offset_acked, 0), {STATE}"
        " FROM (SELECT consumer_group, offset_acked, paused FROM queue_offsets FORCE INDEX (queue_offsets_groups)"
        f" WHERE topic = %s AND partition_key = '' AND consumer_group > '' ORDER BY consumer_group LIMIT {limit:d}) r"
        " LEFT JOIN queue_offsets o FORCE INDEX (queue_offsets_partition) ON o.consumer_group = r.consumer_group"
        " AND o.topic = %s AND o.partition_key = %s"
        " LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = r.consumer_group"
        " AND s.topic = %s AND s.partition_key = %s AND s.message_offset = %s ORDER BY r.consumer_group",
        [topic, topic, partition, topic, partition, offset],
    )
    return [dict(zip(GROUP_COLUMNS, row, strict=True)) for row in rows]


def groups(using: str, topic: str, limit: int) -> list[tuple[str, bool]]:
    """Return (name, paused) of the first ``limit`` groups of a topic, by name."""
    rows = session.fetch(
        using,
        "SELECT consumer_group, paused FROM queue_offsets FORCE INDEX (queue_offsets_groups)"
        f" WHERE topic = %s AND partition_key = '' AND consumer_group > '' ORDER BY consumer_group LIMIT {limit:d}",
        [topic],
    )
    return [(group, bool(paused)) for group, paused in rows]


def dead_letters(
    using: str, dead_topic: str, partition: str, offset: int, limit: int
) -> list[tuple[int, str]]:
    """Return (offset, group) of a message's dead letters. Their ids are ``<offset of the message>:<group>``."""
    rows = session.fetch(
        using,
        "SELECT `offset`, id FROM queue_messages FORCE INDEX (queue_messages_dedupe)"
        f" WHERE topic = %s AND partition_key = %s AND id > %s AND id < %s ORDER BY id LIMIT {limit:d}",
        [dead_topic, partition, f"{offset}:", f"{offset};"],
    )
    return [(int(letter), id.partition(":")[2]) for letter, id in rows]


def parked_retries(using: str, scheduled: str, partition: str, offset: int, limit: int) -> list[int]:
    """Return the offsets of a message's parked retries, among the newest ``limit`` scheduled rows of its partition."""
    rows = session.fetch(
        using,
        "SELECT m.`offset` FROM (SELECT `offset` FROM queue_messages FORCE INDEX (queue_messages_partition)"
        f" WHERE topic = %s AND partition_key = %s ORDER BY `offset` DESC LIMIT {limit:d}) x"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = x.`offset`"
        " WHERE JSON_EXTRACT(m.metadata, '$.retry.offset') = %s",
        [scheduled, partition, offset],
    )
    return [int(one) for (one,) in rows]


def log_entry(using: str, topic: str, offset: int) -> list[LogEntry]:
    """Return the row at an offset if it belongs to the topic; otherwise an empty list."""
    rows = session.fetch(
        using,
        "SELECT `offset`, partition_key, consumer_group FROM queue_messages FORCE INDEX (PRIMARY)"
        " WHERE `offset` = %s AND topic = %s",
        [offset, topic],
    )
    return [(int(found), name, target) for found, name, target in rows]
