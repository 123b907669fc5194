"""Where a group stands, partition by partition, and what its workers have in hand: each reads an index range, up to a
limit, and locks nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import session
from .dialect import NOW_MS, flat, marks, union

POSITION_COLUMNS = ("partition", "acked", "scanned", "moved_at")


def positions(using: str, group: str, topic: str, after: str, limit: int) -> list[dict[str, Any]]:
    """The next partitions that have a position: mappings by ``POSITION_COLUMNS``."""
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
    """The leases of these partitions, held or free: mappings by ``LEASE_COLUMNS``."""
    rows = session.fetch(
        using,
        "SELECT partition_key, leased_by, holder, leased_at, lease_renewed_at FROM queue_partition_leases"
        " FORCE INDEX (queue_leases_partition) WHERE consumer_group = %s AND topic = %s"
        f" AND partition_key IN ({marks(names)})",
        [group, topic, *names],
    )
    return [dict(zip(LEASE_COLUMNS, row, strict=True)) for row in rows]


def behind(
    using: str, group: str, topic: str, above: Sequence[tuple[str, int]], limit: int
) -> dict[str, tuple[int, int]]:
    """(rows looked at, those of them that are for the group and not done) above an offset of each partition.

    Looks at ``limit`` rows of each at most. Partitions without such a row are not in the answer.
    """
    branch = (
        "SELECT m.partition_key, COUNT(*), SUM(m.consumer_group IN ('', %s) AND COALESCE(s.acked, 0) = 0) FROM"
        " (SELECT topic, partition_key, `offset`, consumer_group FROM queue_messages"
        " FORCE INDEX (queue_messages_partition) WHERE topic = %s AND partition_key = %s AND `offset` > %s"
        f" ORDER BY `offset` LIMIT {limit:d}) m LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY)"
        " ON s.consumer_group = %s AND s.topic = m.topic AND s.partition_key = m.partition_key"
        " AND s.message_offset = m.`offset` GROUP BY m.partition_key"
    )
    params = flat([group, topic, partition, offset, group] for partition, offset in above)
    rows = session.fetch(using, union(branch, len(above)), params)
    return {partition: (int(looked), int(count)) for partition, looked, count in rows}


def in_flight(using: str, group: str, topic: str, names: Sequence[str]) -> dict[str, int]:
    """How many deliveries of each partition are open: as many as workers claim at once."""
    rows = session.fetch(
        using,
        "SELECT partition_key, COUNT(*) FROM queue_delivery_state FORCE INDEX (queue_delivery_state_due)"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({marks(names)})"
        " AND acked = 0 AND in_flight = 1 GROUP BY partition_key",
        [group, topic, *names],
    )
    return {partition: int(count) for partition, count in rows}


def done_among(using: str, group: str, topic: str, places: Sequence[tuple[str, int]]) -> set[int]:
    """Offsets of those messages (partition, offset) that the group's delivery state calls done."""
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
"""What is open in the first partitions that have a lease row, as all have where something is open."""

OPEN_COLUMNS = (
    "offset", "partition", "in_flight", "retry_count", "handed", "alone", "delivered_to", "delivered_at",
    "invisible_until", "owner", "holder", "leased_at", "now",
)  # fmt: skip
_OPEN_ROWS = (
    "SELECT s.message_offset, s.partition_key, s.in_flight, s.retry_count, s.handed, s.alone, s.delivered_to,"
    f" s.delivered_at, s.invisible_until, l.leased_by, l.holder, l.leased_at, {NOW_MS}{_OPEN}"
)


def opened(using: str, group: str, topic: str, leases: int, limit: int) -> list[dict[str, Any]]:
    """The first ``limit`` messages that are in flight or wait for a retry: mappings by ``OPEN_COLUMNS``."""
    rows = session.fetch(
        using, f"{_OPEN_ROWS.format(leases=leases)} LIMIT {limit:d}", [group, topic, group, topic]
    )
    return [dict(zip(OPEN_COLUMNS, row, strict=True)) for row in rows]


def in_hand(
    using: str, group: str, topic: str, name: str | None, leases: int, limit: int
) -> list[dict[str, Any]]:
    """Up to ``limit`` open deliveries, or those to one subscriber: mappings by ``OPEN_COLUMNS``."""
    of_name, params = (" AND s.delivered_to = %s", [name]) if name is not None else ("", [])
    rows = session.fetch(
        using,
        f"{_OPEN_ROWS.format(leases=leases)} AND s.in_flight = 1{of_name} LIMIT {limit:d}",
        [group, topic, group, topic, *params],
    )
    return [dict(zip(OPEN_COLUMNS, row, strict=True)) for row in rows]


def open_counts(using: str, group: str, topic: str, leases: int, limit: int) -> tuple[int, int]:
    """How many are in flight, and how many wait for a retry; up to ``limit`` together."""
    rows = session.fetch(
        using,
        f"SELECT in_flight, COUNT(*) FROM (SELECT s.in_flight{_OPEN.format(leases=leases)} LIMIT {limit:d}) x"
        " GROUP BY in_flight",
        [group, topic, group, topic],
    )
    found = {bool(flying): int(count) for flying, count in rows}
    return found.get(True, 0), found.get(False, 0)
