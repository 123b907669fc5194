"""Positions, leases and open deliveries of a group, for each partition.

Each statement reads an index range up to a limit, and locks nothing. A delivery is open if it is in flight or waits
for a retry.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...policy.batching import PER_STATEMENT, batches, batches_by_weight
from ..connection import session
from ..connection.dialect import NOW_MS, STATE_OF_MESSAGE, flat, names_table, placeholders, union
from ..connection.session import fetch_each
from ..leases import Holder
from .partition_walk import PARTITIONS
from .skip_scan import NEWEST

LEASES, ROWS = 200, 1_000
"""Maximum leases and rows of a partition that a statement of ``left_to_others`` reads."""


def known_names(using: str, group: str, topic: str, after: str, limit: int) -> set[str]:
    """Return the next partitions with a lease row or a position of the group, up to ``limit`` of each."""
    one = (
        "SELECT partition_key FROM {} FORCE INDEX ({}) WHERE consumer_group = %s AND topic = %s"
        f" AND partition_key > %s ORDER BY partition_key LIMIT {limit:d}"
    )
    leased = one.format("queue_partition_leases", "queue_leases_partition")
    with_position = one.format("queue_offsets", "queue_offsets_partition")
    rows = session.fetch(using, f"({leased}) UNION ({with_position})", [group, topic, after] * 2)
    return {str(name) for (name,) in rows}


def leased(using: str, pairs: Sequence[tuple[str, str]], limit: int) -> list[list[str]]:
    """Return the first ``limit`` partitions with a lease row, for each (topic, group)."""
    query = (
        "SELECT %s, partition_key FROM queue_partition_leases FORCE INDEX (queue_leases_partition)"
        f" WHERE consumer_group = %s AND topic = %s ORDER BY partition_key LIMIT {limit:d}"
    )
    return [
        [str(name) for (name,) in rows]
        for rows in fetch_each(using, query, [(group, topic) for topic, group in pairs])
    ]


class Progress(NamedTuple):
    """The progress of a group in a partition that the log holds. ``newest``: the partition's last offset.

    The group has acknowledged all up to ``acked``. All up to ``scanned`` was delivered to it. ``moved_at``: when the
    position was stored, in epoch milliseconds; 0 if there is none.
    """

    partition: str
    newest: int
    acked: int
    scanned: int
    moved_at: int


def progress(using: str, groups: Sequence[tuple[str, str, int, Sequence[str]]]) -> list[list[Progress]]:
    """Return the progress of each (topic, group, start, partition names), without partitions that the log lacks.

    ``start``: the offset above which the group began.
    """
    query = (
        f"SELECT %s, p.partition_key, ({NEWEST}), GREATEST(COALESCE(o.offset_acked, 0), %s),"
        " GREATEST(COALESCE(o.scan_offset, 0), COALESCE(o.offset_acked, 0), %s), COALESCE(o.updated_at, 0)"
        f" FROM {names_table('p')} LEFT JOIN queue_offsets o FORCE INDEX (queue_offsets_partition)"
        " ON o.consumer_group = %s AND o.topic = %s AND o.partition_key = p.partition_key"
    )
    parts = [(n, some) for n, (*_, names) in enumerate(groups) for some in batches(names, PARTITIONS)]
    params = []
    for number, names in parts:
        topic, group, start, _ = groups[number]
        params.append([topic, start, start, json.dumps(names), group, topic])
    found: list[list[Progress]] = [[] for _ in groups]
    for (number, _), rows in zip(parts, fetch_each(using, query, params), strict=True):
        found[number] += sorted(Progress(name, *map(int, row)) for name, *row in rows if row[0] is not None)
    return found


class PartitionSearch(NamedTuple):
    """The messages of a partition above an offset, and the group for which they are searched."""

    topic: str
    group: str
    partition: str
    offset: int


def first_open(using: str, searches: Sequence[PartitionSearch]) -> list[int | None]:
    """Return the first offset of each search that the group has not acknowledged; None if there is none."""
    query = (
        "SELECT %s, m.`offset` FROM queue_messages m FORCE INDEX (queue_messages_partition)"
        f" LEFT JOIN {STATE_OF_MESSAGE}"
        " WHERE m.topic = %s AND m.partition_key = %s AND m.`offset` > %s AND m.consumer_group IN ('', %s)"
        " AND (s.acked IS NULL OR s.acked = 0) ORDER BY m.`offset` LIMIT 1"
    )
    params = [(one.group, one.topic, one.partition, one.offset, one.group) for one in searches]
    rows = fetch_each(using, query, params, PER_STATEMENT)
    return [int(found[0][0]) if found else None for found in rows]


def first_open_below(
    using: str, searches: Sequence[tuple[Sequence[PartitionSearch], int]]
) -> list[int | None]:
    """Return the lowest open offset below each limit; None if there is none.

    A search is a pair: partitions of one topic and group, and the limit, which is excluded. The ranges of offsets are
    short, so one statement reads hundreds of them.
    """
    found: list[int | None] = []
    for some in batches_by_weight(searches, lambda search: len(search[0]), PARTITIONS):
        branches, params = list[str](), list[Any]()
        for number, (partitions, below) in enumerate(some):
            ranges = " OR ".join(
                ["(m.partition_key = %s AND m.`offset` > %s AND m.`offset` < %s)"] * len(partitions)
            )
            branches.append(
                "(SELECT %s, MIN(m.`offset`) FROM queue_messages m FORCE INDEX (queue_messages_partition)"
                f" LEFT JOIN {STATE_OF_MESSAGE}"
                f" WHERE m.topic = %s AND ({ranges}) AND m.consumer_group IN ('', %s)"
                " AND (s.acked IS NULL OR s.acked = 0))"
            )
            topic, group = partitions[0][:2]
            bounds = flat([one.partition, one.offset, below] for one in partitions)
            params += [number, group, topic, *bounds, group]
        offsets: dict[int, Any] = dict(session.fetch(using, " UNION ALL ".join(branches), params))
        found += [None if offsets[n] is None else int(offsets[n]) for n in range(len(some))]
    return found


class PartitionState(NamedTuple):
    """A group's position and lease in a partition. Values of a missing row are 0, None or ''."""

    partition: str
    acked: int = 0
    scanned: int = 0
    moved_at: int | None = None
    owner: str = ""
    holder: str = ""
    leased_at: int | None = None
    renewed_at: int | None = None


def partition_states(using: str, group: str, topic: str, names: Sequence[str]) -> dict[str, PartitionState]:
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
    return {row[0]: PartitionState(*row) for row in rows}


class Counted(NamedTuple):
    """Counts of the first rows of a partition above an offset.

    ``rows_read``: rows that were read, up to the offset ``last``. ``opened``: messages for the group that are not done.
    ``pending``: those among them that were never delivered.
    """

    rows_read: int = 0
    opened: int = 0
    pending: int = 0
    last: int = 0


def count_open(using: str, searches: Sequence[tuple[PartitionSearch, int]]) -> list[Counted]:
    """Count the first rows of each search. The number of each search is the maximum number of rows that it reads."""
    query = (
        "SELECT %s, COUNT(*), COALESCE(SUM(m.consumer_group IN ('', %s) AND COALESCE(s.acked, 0) = 0), 0),"
        " COALESCE(SUM(m.consumer_group IN ('', %s) AND s.acked IS NULL), 0), COALESCE(MAX(m.`offset`), 0) FROM"
        " (SELECT topic, partition_key, `offset`, consumer_group FROM queue_messages"
        " FORCE INDEX (queue_messages_partition) WHERE topic = %s AND partition_key = %s AND `offset` > %s"
        f" ORDER BY `offset` LIMIT %s) m LEFT JOIN {STATE_OF_MESSAGE}"
    )
    params = [
        (one.group, one.group, one.topic, one.partition, one.offset, limit, one.group)
        for one, limit in searches
    ]
    return [Counted(*map(int, row)) for (row,) in fetch_each(using, query, params, PER_STATEMENT)]


def in_flight(using: str, group: str, topic: str, names: Sequence[str]) -> dict[str, int]:
    """Count the deliveries in flight in each partition. Workers claim few at once, so this reads few rows."""
    rows = session.fetch(
        using,
        "SELECT partition_key, COUNT(*) FROM queue_delivery_state FORCE INDEX (queue_delivery_state_due)"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({placeholders(names)})"
        " AND acked = 0 AND in_flight = 1 GROUP BY partition_key",
        [group, topic, *names],
    )
    return {partition: int(count) for partition, count in rows}


_OPEN = (
    " FROM (SELECT partition_key, leased_by, holder, leased_at FROM queue_partition_leases"
    " FORCE INDEX (queue_leases_partition) WHERE consumer_group = %s AND topic = %s"
    " ORDER BY partition_key LIMIT %s) l"
    " STRAIGHT_JOIN queue_delivery_state s FORCE INDEX (queue_delivery_state_due)"
    " ON s.consumer_group = %s AND s.topic = %s AND s.partition_key = l.partition_key AND s.acked = 0"
)
"""Open deliveries in the first partitions with a lease row. Each partition with open deliveries has a lease row."""

OPEN_COLUMNS = (
    "offset", "partition", "in_flight", "retry_count", "handed", "alone", "delivered_to", "delivered_at",
    "invisible_until", "owner", "holder", "leased_at", "now",
)  # fmt: skip


def open_deliveries(
    using: str,
    groups: Sequence[tuple[str, str, int]],
    limit: int,
    *,
    in_flight: bool | None = None,
    subscriber: str | None = None,
) -> list[list[dict[str, Any]]]:
    """Return the first ``limit`` open deliveries of each group: mappings by ``OPEN_COLUMNS``.

    ``groups``: (topic, group, number of partitions to read). ``in_flight``: only those in flight, or only those that
    wait for a retry. ``subscriber``: only deliveries to this subscriber.
    """
    query = (
        "SELECT %s, s.message_offset, s.partition_key, s.in_flight, s.retry_count, s.handed, s.alone, s.delivered_to,"
        f" s.delivered_at, s.invisible_until, l.leased_by, l.holder, l.leased_at, {NOW_MS}{_OPEN}"
        f"{'' if in_flight is None else f' AND s.in_flight = {in_flight:d}'}"
        f"{'' if subscriber is None else ' AND s.delivered_to = %s'} LIMIT {limit:d}"
    )
    names = [] if subscriber is None else [subscriber]
    params = [[group, topic, partitions, group, topic, *names] for topic, group, partitions in groups]
    return [
        [dict(zip(OPEN_COLUMNS, row, strict=True)) for row in rows]
        for rows in fetch_each(using, query, params)
    ]


def open_counts(using: str, group: str, topic: str, leases: int, limit: int) -> tuple[int, int]:
    """Return (number in flight, number that wait for a retry), together up to ``limit``."""
    rows = session.fetch(
        using,
        f"SELECT in_flight, COUNT(*) FROM (SELECT s.in_flight{_OPEN} LIMIT {limit:d}) x GROUP BY in_flight",
        [group, topic, leases, group, topic],
    )
    found = {bool(in_flight): int(count) for in_flight, count in rows}
    return found.get(True, 0), found.get(False, 0)


def first_above_watermark(using: str, topic: str, group: str, above: int, upto: int) -> int | None:
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
            f" ORDER BY l.partition_key LIMIT {LEASES:d}",
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
