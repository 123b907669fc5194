"""Read the state of one job: its message, and the delivery state of the group that runs jobs."""

from __future__ import annotations

from typing import Any

from ..connection import session

_SELECT = (
    "SELECT m.topic, m.`offset`, m.payload, m.metadata, m.available_at, m.created_at, s.acked, s.in_flight,"
    " s.invisible_until, s.retry_count, s.handed, s.delivered_to, s.delivered_at, s.acked_at, s.errors, s.result"
    " FROM queue_messages m FORCE INDEX ({index})"
    " LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = %s AND s.topic = m.topic"
    " AND s.partition_key = m.partition_key AND s.message_offset = m.`offset`"
)
COLUMNS = (
    "topic", "offset", "payload", "metadata", "available_at", "created_at", "acked", "in_flight", "invisible_until",
    "retry_count", "handed", "delivered_to", "delivered_at", "acked_at", "errors", "result",
)  # fmt: skip


def by_id(using: str, group: str, topics: tuple[str, str], partition: str, id: str) -> dict[str, Any] | None:
    """Return the job with this id, by ``COLUMNS``; None if it is in neither of the topics."""
    rows = session.fetch(
        using,
        _SELECT.format(index="queue_messages_dedupe")
        + " WHERE m.topic IN (%s, %s) AND m.partition_key = %s AND m.id = %s AND m.consumer_group = '' LIMIT 1",
        [group, *topics, partition, id],
    )
    return dict(zip(COLUMNS, rows[0], strict=True)) if rows else None


def newest_id(using: str, topics: tuple[str, str], partition: str, prefix: str) -> str | None:
    """Return the greatest id with this prefix in the topics, or None. The index orders the ids of a partition."""
    one = (
        "(SELECT m.id FROM queue_messages m FORCE INDEX (queue_messages_dedupe) WHERE m.topic = %s"
        " AND m.partition_key = %s AND m.id > %s AND m.id < %s ORDER BY m.id DESC LIMIT 1)"
    )
    params = [partition, prefix, prefix + "~"]
    rows = session.fetch(using, f"{one} UNION ALL {one}", [topics[0], *params, topics[1], *params])
    return max((str(id) for (id,) in rows), default=None)


def newest_copy(using: str, group: str, topic: str, id: str) -> dict[str, Any] | None:
    """Return the newest message that a retry or a redrive made from the job with this id, by ``COLUMNS``, or None."""
    rows = session.fetch(
        using,
        _SELECT.format(index="queue_messages_due")
        + " WHERE m.topic = %s AND m.failed_group IS NULL AND m.original_id = %s AND m.consumer_group = %s"
        " ORDER BY m.`offset` DESC LIMIT 1",
        [group, topic, id, group],
    )
    return dict(zip(COLUMNS, rows[0], strict=True)) if rows else None
