"""What groups that messages are delivered to are not done with, found by index."""

from __future__ import annotations

from . import session
from .dialect import NOW_MS
from .offsets import READS_LOG


def groups(using: str, topic: str) -> dict[str, int]:
    """The registered groups to which messages are delivered, and their starts."""
    rows = session.fetch(
        using,
        "SELECT consumer_group, offset_acked FROM queue_offsets FORCE INDEX (queue_offsets_groups)"
        " WHERE topic = %s AND partition_key = '' AND consumer_group > '' AND scan_offset <> %s",
        [topic, READS_LOG],
    )
    return {str(group): int(start) for group, start in rows}


def first(using: str, topic: str, group: str, above: int, upto: int) -> int | None:
    """The lowest offset between two that is above the group's watermark in its partition; None: it is done with all."""
    rows = session.fetch(
        using,
        "SELECT m.`offset` FROM queue_messages m FORCE INDEX (queue_messages_tail)"
        " LEFT JOIN queue_offsets o FORCE INDEX (queue_offsets_partition)"
        " ON o.consumer_group = %s AND o.topic = m.topic AND o.partition_key = m.partition_key"
        " WHERE m.topic = %s AND m.`offset` > %s AND m.`offset` <= %s AND m.consumer_group IN ('', %s)"
        " AND COALESCE(o.offset_acked, 0) < m.`offset` ORDER BY m.`offset` LIMIT 1",
        [group, topic, above, upto, group],
    )
    return int(rows[0][0]) if rows else None


def now_ms(using: str) -> int:
    return int(session.fetch(using, f"SELECT {NOW_MS}")[0][0])


def database(using: str) -> str:
    """The name of the database that a connection is in."""
    return str(session.fetch(using, "SELECT DATABASE()")[0][0])
