"""Messages that groups have not finished, found by index. Groups that read the log directly are left out."""

from __future__ import annotations

from ..connection import session
from ..connection.dialect import NOW_MS, STATE_OF_MESSAGE, flat, union
from ..leases import Holder
from ..offsets import registrations


def groups(using: str, topic: str) -> dict[str, int]:
    """Return the start offset of each registered group that messages are delivered to."""
    return {group: one.start for group, one in registrations(using, topic).items() if not one.reads_log}


def first(using: str, topic: str, group: str, above: int, upto: int) -> int | None:
    """Return the first offset in a range that is above the group's watermark in its partition, or None."""
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


PARTITIONS, ROWS = 200, 1_000


def left_to_others(using: str, holder: Holder, start: int) -> int:
    """Count messages that are in flight or can be delivered now, in partitions whose leases other subscribers hold.

    It reads at most ``ROWS`` messages of each partition. ``start``: the start offset of the group.
    """
    branch = (
        "SELECT COALESCE(SUM(m.consumer_group IN ('', %s) AND (s.acked IS NULL OR"
        f" (s.acked = 0 AND (s.in_flight = 1 OR s.invisible_until <= {NOW_MS})))), 0) FROM"
        " (SELECT topic, partition_key, `offset`, consumer_group FROM queue_messages"
        " FORCE INDEX (queue_messages_partition) WHERE topic = %s AND partition_key = %s AND `offset` > %s"
        f" ORDER BY `offset` LIMIT {ROWS:d}) m LEFT JOIN {STATE_OF_MESSAGE}"
    )
    count, after = 0, ""
    while True:
        positions = session.fetch(
            using,
            "SELECT l.partition_key, COALESCE(o.offset_acked, 0) FROM queue_partition_leases l"
            " FORCE INDEX (queue_leases_partition) LEFT JOIN queue_offsets o FORCE INDEX (queue_offsets_partition)"
            " ON o.consumer_group = l.consumer_group AND o.topic = l.topic AND o.partition_key = l.partition_key"
            " WHERE l.consumer_group = %s AND l.topic = %s AND l.partition_key > %s AND l.holder NOT IN ('', %s)"
            f" ORDER BY l.partition_key LIMIT {PARTITIONS:d}",
            [holder.group, holder.topic, after, holder.incarnation],
        )
        if not positions:
            return count
        params = flat(
            [holder.group, holder.topic, name, max(int(acked), start), holder.group]
            for name, acked in positions
        )
        count += sum(int(found) for (found,) in session.fetch(using, union(branch, len(positions)), params))
        after = positions[-1][0]


def database(using: str) -> str:
    """Return the name of a connection's database."""
    return str(session.fetch(using, "SELECT DATABASE()")[0][0])
