"""Positions, leases and open deliveries of a group, for each partition.

Each statement reads an index range up to a limit, and locks nothing. A delivery is open if it is in flight or waits
for a retry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..connection import session
from ..connection.dialect import NOW_MS, flat, marks, union

POSITION_COLUMNS = ("partition", "acked", "scanned", "moved_at")


def positions(using: str, group: str, topic: str, after: str, limit: int) -> list[dict[str, Any]]:
    """Return the next ``limit`` partitions that have a position: mappings by ``POSITION_COLUMNS``."""
    rows = session.fetch(
        using,
        "SELECT partition_key, offset_acked, scan_offset, updated_at FROM queue_offsets"
        " FORCE INDEX (queue_offsets_partition) WHERE consumer_group = %s AND topic = %s AND partition_key > %s"
        f" ORDER BY partition_key LIMIT {limit:d}",
        [group, topic, after],
    )
    return [dict(zip(POSITION_COLUMNS, row, strict=True)) for row in rows]


def positions_of(using: str, group: str, topic: str, names: Sequence[str]) -> list[dict[str, Any]]:
    rows = session.fetch(
        using,
        "SELECT partition_key, offset_acked, scan_offset, updated_at FROM queue_offsets"
        " FORCE INDEX (queue_offsets_partition) WHERE consumer_group = %s AND topic = %s"
        f" AND partition_key IN ({marks(names)})",
        [group, topic, *names],
    )
    return [dict(zip(POSITION_COLUMNS, row, strict=True)) for row in rows]


LEASE_COLUMNS = ("partition", "owner", "holder", "leased_at", "renewed_at")


def leases_of(using: str, group: str, topic: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the leases of these partitions, held or free: mappings by ``LEASE_COLUMNS``."""
    if not names:
        return []
    rows = session.fetch(
        using,
        "SELECT partition_key, leased_by, holder, leased_at, lease_renewed_at FROM queue_partition_leases"
        " FORCE INDEX (queue_leases_partition) WHERE consumer_group = %s AND topic = %s"
        f" AND partition_key IN ({marks(names)})",
        [group, topic, *names],
    )
    return [dict(zip(LEASE_COLUMNS, row, strict=True)) for row in rows]


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
    """Return the number of deliveries in flight in each partition. It is at most the number that workers claim at
    once.
    """
    rows = session.fetch(
        using,
        "SELECT partition_key, COUNT(*) FROM queue_delivery_state FORCE INDEX (queue_delivery_state_due)"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({marks(names)})"
        " AND acked = 0 AND in_flight = 1 GROUP BY partition_key",
        [group, topic, *names],
    )
    return {partition: int(count) for partition, count in rows}


def done_among(using: str, group: str, topic: str, places: Sequence[tuple[str, int]]) -> set[int]:
    """Return the offsets of the messages, given as (partition, offset), that the group has acknowledged."""
    which = " OR ".join(["(partition_key = %s AND message_offset = %s)"] * len(places))
    rows = session.fetch(
        using,
        "SELECT message_offset FROM queue_delivery_state FORCE INDEX (PRIMARY)"
        f" WHERE consumer_group = %s AND topic = %s AND ({which}) AND acked = 1",
        [group, topic, *flat(places)],
    )
    return {int(offset) for (offset,) in rows}


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
