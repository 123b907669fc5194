"""Positions, leases and open deliveries of a group, for each partition.

Each statement reads an index range up to a limit, and locks nothing. A delivery is open if it is in flight or waits
for a retry.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..connection import session
from ..connection.dialect import NOW_MS, flat, marks, names_table, union


def known_names(using: str, group: str, topic: str, after: str, limit: int) -> set[str]:
    """Return the next partitions that the group uses or has used: up to ``limit`` with a lease, or with a position."""
    one = (
        "SELECT partition_key FROM {} FORCE INDEX ({}) WHERE consumer_group = %s AND topic = %s"
        f" AND partition_key > %s ORDER BY partition_key LIMIT {limit:d}"
    )
    leased = one.format("queue_partition_leases", "queue_leases_partition")
    placed = one.format("queue_offsets", "queue_offsets_partition")
    rows = session.fetch(using, f"({leased}) UNION ({placed})", [group, topic, after] * 2)
    return {str(name) for (name,) in rows}


class Place(NamedTuple):
    """A group's position and lease in a partition. Values of a missing row are 0, None or ''."""

    partition: str
    acked: int = 0
    scanned: int = 0
    moved_at: int | None = None
    owner: str = ""
    holder: str = ""
    leased_at: int | None = None
    renewed_at: int | None = None


def places(using: str, group: str, topic: str, names: Sequence[str]) -> dict[str, Place]:
    """Return the group's position and lease in these partitions, by name."""
    rows = session.fetch(
        using,
        "SELECT p.partition_key, COALESCE(o.offset_acked, 0), COALESCE(o.scan_offset, 0), o.updated_at,"
        " COALESCE(l.leased_by, ''), COALESCE(l.holder, ''), l.leased_at, l.lease_renewed_at"
        f" FROM {names_table('p')} LEFT JOIN queue_offsets o FORCE INDEX (queue_offsets_partition)"
        " ON o.consumer_group = %s AND o.topic = %s AND o.partition_key = p.partition_key"
        " LEFT JOIN queue_partition_leases l FORCE INDEX (queue_leases_partition)"
        " ON l.consumer_group = %s AND l.topic = %s AND l.partition_key = p.partition_key",
        [json.dumps(names), group, topic, group, topic],
    )
    return {row[0]: Place(*row) for row in rows}


class Counted(NamedTuple):
    """Counts of the first rows of a partition above an offset.

    ``looked``: rows that were read, up to the offset ``last``. ``opened``: messages for the group that are not done.
    ``pending``: those among them that were never delivered.
    """

    looked: int = 0
    opened: int = 0
    pending: int = 0
    last: int = 0


def behind(
    using: str, group: str, topic: str, above: Sequence[tuple[str, int]], limit: int
) -> dict[str, Counted]:
    """Count the first ``limit`` rows of each partition above its offset. Partitions without such a row are missing."""
    branch = (
        "SELECT m.partition_key, COUNT(*), SUM(m.consumer_group IN ('', %s) AND COALESCE(s.acked, 0) = 0),"
        " SUM(m.consumer_group IN ('', %s) AND s.acked IS NULL), MAX(m.`offset`) FROM"
        " (SELECT topic, partition_key, `offset`, consumer_group FROM queue_messages"
        " FORCE INDEX (queue_messages_partition) WHERE topic = %s AND partition_key = %s AND `offset` > %s"
        f" ORDER BY `offset` LIMIT {limit:d}) m LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY)"
        " ON s.consumer_group = %s AND s.topic = m.topic AND s.partition_key = m.partition_key"
        " AND s.message_offset = m.`offset` GROUP BY m.partition_key"
    )
    params = flat([group, group, topic, partition, offset, group] for partition, offset in above)
    rows = session.fetch(using, union(branch, len(above)), params)
    return {partition: Counted(*map(int, counts)) for partition, *counts in rows}


def in_flight(using: str, group: str, topic: str, names: Sequence[str]) -> dict[str, int]:
    """Count the deliveries in flight in each partition. Workers claim few at once, so this reads few rows."""
    rows = session.fetch(
        using,
        "SELECT partition_key, COUNT(*) FROM queue_delivery_state FORCE INDEX (queue_delivery_state_due)"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({marks(names)})"
        " AND acked = 0 AND in_flight = 1 GROUP BY partition_key",
        [group, topic, *names],
    )
    return {partition: int(count) for partition, count in rows}


_OPEN = (
    " FROM (SELECT partition_key, leased_by, holder, leased_at FROM queue_partition_leases"
    " FORCE INDEX (queue_leases_partition) WHERE consumer_group = %s AND topic = %s"
    " ORDER BY partition_key LIMIT {leases:d}) l"
    " STRAIGHT_JOIN queue_delivery_state s FORCE INDEX (queue_delivery_state_due)"
    " ON s.consumer_group = %s AND s.topic = %s AND s.partition_key = l.partition_key AND s.acked = 0"
)
"""Open deliveries in the first partitions with a lease row. Each partition with open deliveries has a lease row."""

OPEN_COLUMNS = (
    "offset", "partition", "in_flight", "retry_count", "handed", "alone", "delivered_to", "delivered_at",
    "invisible_until", "owner", "holder", "leased_at", "now",
)  # fmt: skip
_OPEN_ROWS = (
    "SELECT s.message_offset, s.partition_key, s.in_flight, s.retry_count, s.handed, s.alone, s.delivered_to,"
    f" s.delivered_at, s.invisible_until, l.leased_by, l.holder, l.leased_at, {NOW_MS}{_OPEN}"
)


def opened(
    using: str,
    group: str,
    topic: str,
    leases: int,
    limit: int,
    *,
    in_flight: bool | None = None,
    name: str | None = None,
) -> list[dict[str, Any]]:
    """Return the first ``limit`` open deliveries: mappings by ``OPEN_COLUMNS``.

    ``leases``: the number of partitions to read. ``in_flight``: only those in flight, or only those that wait for a
    retry. ``name``: only deliveries to this subscriber.
    """
    which, params = "", [group, topic, group, topic]
    if in_flight is not None:
        which += f" AND s.in_flight = {in_flight:d}"
    if name is not None:
        which += " AND s.delivered_to = %s"
        params.append(name)
    rows = session.fetch(using, f"{_OPEN_ROWS.format(leases=leases)}{which} LIMIT {limit:d}", params)
    return [dict(zip(OPEN_COLUMNS, row, strict=True)) for row in rows]


def open_counts(using: str, group: str, topic: str, leases: int, limit: int) -> tuple[int, int]:
    """Return (number in flight, number that wait for a retry), together up to ``limit``."""
    rows = session.fetch(
        using,
        f"SELECT in_flight, COUNT(*) FROM (SELECT s.in_flight{_OPEN.format(leases=leases)} LIMIT {limit:d}) x"
        " GROUP BY in_flight",
        [group, topic, group, topic],
    )
    found = {bool(flying): int(count) for flying, count in rows}
    return found.get(True, 0), found.get(False, 0)
