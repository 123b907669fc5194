"""The messages that a group is not done with: counted up to a limit, and the oldest of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...policy.batching import PER_STATEMENT, batches
from ...policy.message_query import DONE, IN_FLIGHT, OFFSET_MAX, PENDING, WAITING
from ...store.queries import bounded_counts, group_rows, partition_progress, skip_scan
from ...store.queries.group_rows import Range, Row
from ...store.queries.partition_progress import Counted, PartitionSearch, Progress
from ...store.queries.partition_walk import PARTITIONS
from ..results import AT_LEAST, Figure, capped

Pair = tuple[str, str]
"""Topic and group."""

OPEN_STATUSES = (PENDING, IN_FLIGHT, WAITING)
NAMED = 200
"""Up to this number, all partitions of a topic are read."""
PARTITIONS_READ, SHARED = 6_000, 3_000
"""Maximum lease rows to read if a topic has more than ``NAMED`` partitions: of one pair; of several pairs in all."""
LEASES, OPEN = 20_000, 5_000
"""The maximum number of leases, and of open deliveries, that are read."""
FIRST = 20
"""The number of partitions in the first step of the search for the oldest open message."""
ROWS = 10
"""The number of rows that are counted first in each partition."""
RECENT = 20
"""The number of rows that are read at each end of a group's backlog."""


@dataclass(frozen=True)
class Positions:
    """A group's positions in the partitions of a topic.

    ``behind``: the partitions in which the group is behind. ``reached``: the highest offset that was delivered.
    ``moved_at``: when a position last changed, in epoch milliseconds. ``is_partial``: some partitions were not read.
    ``is_capped``: the partitions that were not read may have open deliveries.
    """

    behind: list[Progress]
    reached: int
    moved_at: int
    is_partial: bool
    is_capped: bool


def read_positions(using: str, starts: Mapping[Pair, int], limit: int) -> dict[Pair, Positions]:
    """Return each group's positions in all partitions of its topic, or in up to ``limit`` partitions with a lease row.

    Each partition with open deliveries has a lease row. Partitions that no worker has found yet have none.
    """
    few = min(NAMED, limit)
    known = skip_scan.first_partitions(using, sorted({topic for topic, _ in starts}), few + 1)
    partial = [pair for pair in starts if len(known[pair[0]]) > few]
    leased = dict(zip(partial, partition_progress.leased(using, partial, limit), strict=True))
    names = {pair: leased.get(pair) or known[pair[0]] for pair in starts}
    groups = [(*pair, start, names[pair]) for pair, start in starts.items()]
    found = {}
    for pair, progress in zip(starts, partition_progress.progress(using, groups), strict=True):
        found[pair] = Positions(
            [one for one in progress if one.newest > one.acked],
            max((one.scanned for one in progress), default=starts[pair]),
            max((one.moved_at for one in progress), default=0),
            pair in leased,
            len(leased.get(pair, ())) >= limit,
        )
    return found


def oldest_open(using: str, topic: str, group: str, start: int, limit: int) -> tuple[int | None, bool]:
    """Return the lowest offset that the group is not done with, and whether the search may be incomplete.

    The offset is None if nothing is open. The search reads at most ``limit`` partitions.
    """
    names = skip_scan.partitions(topic).next(using, "", limit)
    (progress,) = partition_progress.progress(using, [(topic, group, start, names)])
    behind = {(topic, group): [one for one in progress if one.newest > one.acked]}
    return _first_open(using, behind).get((topic, group)), len(names) >= limit


def _first_open(using: str, behind: Mapping[Pair, Sequence[Progress]]) -> dict[Pair, int]:
    """Return the lowest open offset of each group that has one in these partitions.

    Open messages are above their partition's watermark. So after the partitions with the lowest watermarks are read,
    most others cannot hold an older one.
    """
    above = {
        pair: sorted(
            (PartitionSearch(*pair, one.partition, one.acked) for one in some),
            key=lambda one: (one.offset, one.partition),
        )
        for pair, some in behind.items()
    }
    found: dict[Pair, int] = {}
    size = FIRST
    while pairs := [pair for pair, some in above.items() if some and pair not in found]:
        searches = [one for pair in pairs for one in above[pair][:size]]
        for one, offset in zip(searches, partition_progress.first_open(using, searches), strict=True):
            if offset is not None:
                found[one[:2]] = min(offset, found.get(one[:2], OFFSET_MAX))
        above |= {pair: above[pair][size:] for pair in pairs}
        size = PARTITIONS
    bounded = [
        (some, found[pair])
        for pair, rest in above.items()
        for some in batches([one for one in rest if one.offset < found[pair] - 1], PARTITIONS)
    ]
    for (some, below), offset in zip(
        bounded, partition_progress.first_open_below(using, bounded), strict=True
    ):
        pair = some[0][:2]
        found[pair] = min(found[pair], offset or below)
    return found


def opened(using: str, topic: str, group: str) -> list[dict[str, Any]]:
    """Return the first ``OPEN`` open deliveries, as mappings by ``partition_progress.OPEN_COLUMNS``.

    All parts of a page use this query: in ``session.cached_queries``, the page runs it once.
    """
    (found,) = partition_progress.open_deliveries(using, [(topic, group, LEASES)], OPEN)
    return found


def deliveries_in_flight(
    using: str, topic: str, group: str, subscriber: str | None, limit: int
) -> list[dict[str, Any]]:
    """Return up to ``limit`` messages in flight: of the whole group, or of one subscriber."""
    if subscriber is None:
        rows = opened(using, topic, group)
        found = [row for row in rows if row["in_flight"]]
        if len(rows) < OPEN or len(found) >= limit:
            return found[:limit]
    (found,) = partition_progress.open_deliveries(
        using, [(topic, group, LEASES)], limit, in_flight=True, subscriber=subscriber
    )
    return found


NONE = Figure(0)


@dataclass(frozen=True)
class Backlog:
    """The open messages of a group. ``oldest``: the lowest offset; None if there is none.

    ``recent``: rows around the group's position, and its open deliveries. ``positions``: None for a short topic.
    """

    pending: Figure = NONE
    in_flight: Figure = NONE
    waiting: Figure = NONE
    oldest: int | None = None
    oldest_is_exact: bool = True
    recent: Sequence[Row] = field(default_factory=list)
    positions: Positions | None = None


def backlogs(using: str, starts: Mapping[Pair, int], cap: int) -> dict[Pair, Backlog]:
    """Return the backlog of each (topic, group). ``starts``: the offset above which each began.

    Up to ``cap`` messages are counted of each status. The rows of short topics are all read.
    """
    counts = bounded_counts.rows(using, sorted({topic for topic, _ in starts}), cap + 1)
    longer = {topic for topic, count in counts.items() if count > cap}
    short = [pair for pair in starts if pair[0] not in longer]
    read = group_rows.rows(using, [Range(*pair, starts[pair]) for pair in short], cap)
    found = dict(zip(short, map(_whole_backlog, read), strict=True))
    long = {pair: start for pair, start in starts.items() if pair[0] in longer}
    limit = PARTITIONS_READ if len(starts) == 1 else SHARED // max(len(starts), 1)
    return found | (_long_backlogs(using, long, cap, limit) if long else {})


def _whole_backlog(rows: Sequence[Row]) -> Backlog:
    pending, in_flight, waiting = (Figure(_count(rows, status)) for status in OPEN_STATUSES)
    return Backlog(pending, in_flight, waiting, _oldest(rows), True, rows)


def _oldest(rows: Sequence[Row]) -> int | None:
    return next((row.offset for row in rows if row.status in OPEN_STATUSES), None)


def _count(rows: Sequence[Row], status: str) -> int:
    return sum(row.status == status for row in rows)


class _Ends(NamedTuple):
    """Rows of a topic: the first above the group's start, the last that it has reached, and the newest."""

    first: Sequence[Row]
    reached: Sequence[Row]
    newest: Sequence[Row]


def _long_backlogs(using: str, starts: Mapping[Pair, int], cap: int, limit: int) -> dict[Pair, Backlog]:
    """Return backlogs in topics that have too many messages to read all of them. Each statement reads many groups."""
    positions = read_positions(using, starts, limit)
    ends = _ends(using, starts, positions)
    delivered = _delivered(using, positions, cap, limit)
    pending = count_pending(using, {pair: position.behind for pair, position in positions.items()}, cap)
    unsearched = {
        pair: position.behind for pair, position in positions.items() if _oldest(ends[pair].first) is None
    }
    first_open = _first_open(using, unsearched)
    partial = {pair: start for pair, start in starts.items() if positions[pair].is_partial}
    newest = _newest_pending(using, partial, ends, cap + 1)
    found = {}
    for pair, position in positions.items():
        in_flight, waiting, rows = delivered[pair]
        oldest, count = _oldest(ends[pair].first), pending[pair]
        is_exact = oldest is not None or not position.is_partial
        if oldest is None:
            others = [row.offset for row in (*ends[pair].newest, *rows) if row.status in OPEN_STATUSES]
            oldest = min([*others, *([first_open[pair]] if pair in first_open else ())], default=None)
        if position.is_partial:
            count = Figure(max(count.value, min(newest.get(pair, 0), cap)), AT_LEAST)
        recent = [*ends[pair].reached, *rows]
        found[pair] = Backlog(count, in_flight, waiting, oldest, is_exact, recent, position)
    return found


def _ends(using: str, starts: Mapping[Pair, int], positions: Mapping[Pair, Positions]) -> dict[Pair, _Ends]:
    ranges = []
    for pair, start in starts.items():
        first = Range(*pair, start, start + 1)
        newest = first._replace(newest_first=True)
        ranges += [first, newest._replace(high=positions[pair].reached + 1), newest]
    rows = iter(group_rows.rows(using, ranges, RECENT))
    return {pair: _Ends(next(rows), next(rows), next(rows)) for pair in starts}


def _newest_pending(
    using: str, starts: Mapping[Pair, int], ends: Mapping[Pair, _Ends], limit: int
) -> dict[Pair, int]:
    """Count the messages that were never delivered among the newest ``limit``. Leave out groups that are done."""
    ranges = {
        pair: Range(*pair, start, start + 1, newest_first=True)
        for pair, start in starts.items()
        if any(row.status != DONE for row in ends[pair].newest)
    }
    read = group_rows.rows(using, [*ranges.values()], limit)
    return {pair: _count(rows, PENDING) for pair, rows in zip(ranges, read, strict=True)}


def _delivered(
    using: str, positions: Mapping[Pair, Positions], cap: int, limit: int
) -> dict[Pair, tuple[Figure, Figure, list[Row]]]:
    """Return the number of messages in flight, the number that wait for a retry, and these messages."""
    groups = [
        (*pair, limit if position.is_partial else PARTITIONS_READ) for pair, position in positions.items()
    ]
    in_flight, waiting = (
        partition_progress.open_deliveries(using, groups, cap + 1, in_flight=status)
        for status in (True, False)
    )

    def figure(position: Positions, found: Collection[object]) -> Figure:
        is_partial = position.is_capped and len(found) <= cap
        return Figure(len(found), AT_LEAST) if is_partial else capped(len(found), cap)

    found = {}
    for (pair, position), running, retrying in zip(positions.items(), in_flight, waiting, strict=True):
        rows = [_delivery(row) for row in (*running, *retrying)]
        found[pair] = figure(position, running), figure(position, retrying), rows
    return found


def _delivery(row: dict[str, Any]) -> Row:
    status = IN_FLIGHT if row["in_flight"] else WAITING
    delivered_at = int(row["delivered_at"]) if row["delivered_to"] else None
    return Row(
        int(row["offset"]), 0, None, status, delivered_at, None, once=False, started=bool(row["handed"]), skipped=False
    )  # fmt: skip


class _PendingCount:
    """Counts messages never delivered to a group. It reads a few rows of each partition first, then more.

    ``left``: the number of rows that may still be read. ``each``: the number of rows to read next of each partition.
    """

    def __init__(self, pair: Pair, behind: Sequence[Progress], cap: int) -> None:
        self.above = [PartitionSearch(*pair, p.partition, p.scanned) for p in behind if p.newest > p.scanned]
        self.count, self.cap, self.left, self.each = 0, cap, cap + ROWS, ROWS

    def next(self) -> list[tuple[PartitionSearch, int]]:
        """Return the next partitions to count, with the number of rows to read."""
        if self.left <= 0 or self.count > self.cap:
            return []
        return [(one, self.each) for one in self.above[: min(PER_STATEMENT, max(1, self.left // self.each))]]

    def add(self, counted: Sequence[Counted]) -> None:
        """Add the counts of the partitions that ``next`` returned."""
        read, self.above = self.above[: len(counted)], self.above[len(counted) :]
        for above, count in zip(read, counted, strict=True):
            self.count, self.left = self.count + count.pending, self.left - count.rows_read
            if count.rows_read == self.each:  # There may be more rows. Count them after the other partitions.
                self.above.append(above._replace(offset=count.last))
        self.each = max(self.each, self.left // max(len(self.above), 1))

    @property
    def figure(self) -> Figure:
        return Figure(min(self.count, self.cap), AT_LEAST) if self.above else capped(self.count, self.cap)


def count_pending(using: str, behind: Mapping[Pair, Sequence[Progress]], cap: int) -> dict[Pair, Figure]:
    """Count the messages of each group that were never delivered to it, up to ``cap``."""
    counts = {pair: _PendingCount(pair, some, cap) for pair, some in behind.items()}
    while steps := [(one, some) for one in counts.values() if (some := one.next())]:
        counted = iter(partition_progress.count_open(using, [above for _, some in steps for above in some]))
        for one, some in steps:
            one.add([next(counted) for _ in some])
    return {pair: one.figure for pair, one in counts.items()}
