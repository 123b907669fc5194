"""The messages that a group is not done with: counted up to a limit, and the oldest of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...policy.batching import PER_STATEMENT, batches
from ...policy.message_query import IN_FLIGHT, PENDING, WAITING
from ...store import watermarks
from ...store.connection import session
from ...store.queries import bounded_counts, group_rows, message_pages, partition_progress
from ...store.queries.group_rows import Range, Row
from ...store.queries.message_pages import News
from ...store.queries.partition_progress import Counted
from ...store.queries.partition_walk import OFFSET_END, PARTITIONS
from ..results import AT_LEAST, Figure, capped

OPEN_STATUSES = (PENDING, IN_FLIGHT, WAITING)
NAMED = 200
"""Up to this number, all partitions of a topic are read."""
PARTITIONS_READ, SHARED = 6_000, 3_000
"""Above ``NAMED``, only partitions with a lease row are read: at most so many for one pair, and for all pairs."""
LEASES, OPEN = 20_000, 5_000
"""The maximum number of leases, and of open deliveries, that are read."""
FIRST = 20
"""The number of partitions whose first open message is read before an upper bound is known."""
TOGETHER = 500
ROWS = 10
"""The number of rows that are counted first in each partition."""
RECENT = 20
"""The number of rows that are read at each end of a group's backlog."""


@dataclass(frozen=True)
class Positions:
    """A group's positions in the partitions of a topic.

    ``behind``: the partitions in which the group is behind. ``reached``: the highest offset that was delivered.
    ``moved_at``: when a position last changed, in epoch milliseconds. ``is_partial``: some partitions were not read.
    ``is_capped``: these may include partitions with open deliveries.
    """

    behind: list[News]
    reached: int
    moved_at: int
    is_partial: bool
    is_capped: bool


def positions(using: str, topic: str, group: str, start: int, most: int) -> Positions:
    """Return the group's positions in all partitions of a topic, or in up to ``most`` partitions with a lease row.

    Each partition with open deliveries has a lease row. Partitions that no worker has found yet have none.
    """
    known = message_pages.partitions(using, topic, "", min(NAMED, most) + 1)
    is_partial = len(known) > min(NAMED, most)
    names = message_pages.leased(using, group, topic, "", most) if is_partial else known
    found = _news(using, topic, group, start, names or known)
    return Positions(
        [one for one in found if one.newest > one.acked],
        max((one.scanned for one in found), default=start),
        max((one.moved_at for one in found), default=0),
        is_partial,
        is_partial and len(names) >= most,
    )


def _news(using: str, topic: str, group: str, start: int, names: Sequence[str]) -> list[News]:
    return [
        one
        for some in batches(names, PARTITIONS)
        for one in message_pages.news(using, group, topic, start, some)
    ]


def oldest_open(using: str, topic: str, group: str, start: int, most: int) -> tuple[int | None, bool]:
    """Return the lowest offset that the group is not done with, and whether the search may be incomplete.

    The offset is None if nothing is open. The search reads at most ``most`` partitions.
    """
    names = message_pages.partitions(using, topic, "", most)
    found = _news(using, topic, group, start, names)
    oldest = _first_open(using, topic, group, [one for one in found if one.newest > one.acked])
    return (None if oldest == OFFSET_END else oldest), len(names) >= most


def _first_open(using: str, topic: str, group: str, behind: Sequence[News]) -> int:
    """Return the lowest open offset of the partitions, or ``OFFSET_END``.

    A watermark is just below its partition's first open message, or was a moment ago. So after a few partitions, most
    of the others cannot hold an older open message.
    """
    above = sorted(((one.partition, one.acked) for one in behind), key=lambda one: (one[1], one[0]))
    found = OFFSET_END
    for some in (above[:FIRST], *batches(above[FIRST:], TOGETHER)):
        lower = [(name, acked) for name, acked in some if acked < found - 1]
        if not lower:
            break
        if found == OFFSET_END:
            first = partial(watermarks.first_open, group=group, topic=topic, above=lower, settled=OFFSET_END)
            found = min(session.single(using, first).values(), default=OFFSET_END)
        else:
            found = min(found, message_pages.first_open_below(using, group, topic, lower, found) or found)
    return found


def opened(using: str, topic: str, group: str) -> list[dict[str, Any]]:
    """Return the first ``OPEN`` open deliveries, as mappings by ``partition_progress.OPEN_COLUMNS``.

    All parts of a page use this query, so that the page runs it once.
    """
    return partition_progress.opened(using, group, topic, LEASES, OPEN)


def in_hand(using: str, topic: str, group: str, subscriber: str | None, limit: int) -> list[dict[str, Any]]:
    """Return up to ``limit`` messages in flight: of the whole group, or of one subscriber."""
    if subscriber is None:
        rows = opened(using, topic, group)
        found = [row for row in rows if row["in_flight"]]
        if len(rows) < OPEN or len(found) >= limit:
            return found[:limit]
    return partition_progress.opened(using, group, topic, LEASES, limit, in_flight=True, name=subscriber)


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


def backlogs(using: str, starts: dict[tuple[str, str], int], cap: int) -> dict[tuple[str, str], Backlog]:
    """Return the backlog of each (topic, group). ``starts``: the offset above which each began.

    Up to ``cap`` messages are counted of each status.
    """
    most = PARTITIONS_READ if len(starts) == 1 else SHARED // max(len(starts), 1)
    longer = bounded_counts.longer_than(using, sorted({topic for topic, _ in starts}), cap)
    short = [pair for pair in starts if pair[0] not in longer]
    read = group_rows.rows(using, [Range(*pair, starts[pair]) for pair in short], cap)
    long = {pair: _Long(using, pair, start, cap, most) for pair, start in starts.items() if pair[0] in longer}
    ends = iter(group_rows.rows(using, [part for one in long.values() for part in one.ends], RECENT))
    found = {pair: one.backlog(next(ends), next(ends), next(ends)) for pair, one in long.items()}
    return found | dict(zip(short, map(_whole, read), strict=True))


def _whole(rows: Sequence[Row]) -> Backlog:
    pending, in_flight, waiting = (Figure(_count(rows, status)) for status in OPEN_STATUSES)
    return Backlog(pending, in_flight, waiting, _oldest(rows), True, rows)


def _oldest(rows: Sequence[Row]) -> int | None:
    return next((row.offset for row in rows if row.status in OPEN_STATUSES), None)


def _count(rows: Sequence[Row], status: str) -> int:
    return sum(row.status == status for row in rows)


class _Long:
    """The backlog in a topic that has too many messages to read all of them."""

    def __init__(self, using: str, names: tuple[str, str], start: int, cap: int, most: int) -> None:
        self.using, self.names, self.cap, self.most = using, names, cap, most
        self.positions = positions(using, *names, start, most)
        first = Range(*names, start, start + 1)
        newest = first._replace(newest_first=True)
        self.ends = (first, newest._replace(high=self.positions.reached + 1), newest)

    def backlog(self, first: Sequence[Row], reached: Sequence[Row], newest: Sequence[Row]) -> Backlog:
        """Return the backlog. The parameters are the rows of ``ends``."""
        in_flight, waiting, delivered = self._delivered()
        oldest = _oldest(first)
        is_exact = oldest is not None or not self.positions.is_partial
        if oldest is None:
            found = [_first_open(self.using, *self.names, self.positions.behind)]
            found += [row.offset for row in (*newest, *delivered) if row.status in OPEN_STATUSES]
            oldest = None if min(found) == OFFSET_END else min(found)
        pending, recent = self._pending(newest), [*reached, *delivered]
        return Backlog(pending, in_flight, waiting, oldest, is_exact, recent, self.positions)

    def _pending(self, newest: Sequence[Row]) -> Figure:
        late = [(one.partition, one.scanned) for one in self.positions.behind if one.newest > one.scanned]
        found = count_pending(self.using, *self.names, late, self.cap)
        if self.positions.is_partial:
            return Figure(max(found.value, min(_count(newest, PENDING), self.cap)), AT_LEAST)
        return found

    def _delivered(self) -> tuple[Figure, Figure, list[Row]]:
        """Return the number of messages in flight, the number that wait for a retry, and these messages."""
        topic, group = self.names
        leases = self.most if self.positions.is_partial else PARTITIONS_READ
        figures, rows = list[Figure](), list[Row]()
        for status in (IN_FLIGHT, WAITING):
            found = partition_progress.opened(
                self.using, group, topic, leases, self.cap + 1, in_flight=status == IN_FLIGHT
            )
            is_partial = self.positions.is_capped and len(found) <= self.cap
            figures.append(Figure(len(found), AT_LEAST) if is_partial else capped(len(found), self.cap))
            rows += [_delivery(row, status) for row in found]
        in_flight, waiting = figures
        return in_flight, waiting, rows


def _delivery(row: dict[str, Any], status: str) -> Row:
    delivered_at = int(row["delivered_at"]) if row["delivered_to"] else None
    return Row(
        int(row["offset"]), 0, None, status, delivered_at, None, once=False, started=bool(row["handed"]), skipped=False
    )  # fmt: skip


def count_pending(using: str, topic: str, group: str, above: Sequence[tuple[str, int]], cap: int) -> Figure:
    """Count the messages above an offset of each partition that were never delivered to the group, up to ``cap``.

    It reads a few rows of each partition first, and then more rows of the longer ones.
    """
    count, left, each, places = 0, cap + ROWS, ROWS, dict(above)
    while places and left > 0 and count <= cap:
        some = [*places.items()][: min(PER_STATEMENT, max(1, left // each))]
        found = partition_progress.behind(using, group, topic, some, each)
        for name, _ in some:
            one = found.get(name, Counted())
            count, left = count + one.pending, left - one.looked
            del places[name]
            if one.looked == each:
                places[name] = one.last  # Moved behind the other partitions.
        each = max(each, left // max(len(places), 1))
    return Figure(min(count, cap), AT_LEAST) if places else capped(count, cap)
