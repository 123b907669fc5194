"""The positions of a group in the partitions of a topic, read one by one up to a limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...policy.batching import batches
from ...store import offsets
from ...store.queries import group_positions, message_pages, samples
from ...store.queries.group_positions import Place
from ...store.queries.partition_walk import OFFSET_END

NAMED = 200
"""The maximum number of partitions of a topic that are all read. For larger topics, see ``read_positions``."""
SEARCHES = 20
"""The maximum number of rounds that search the log for partitions between the known names."""
FIRST = 5
"""The number of rows that are read first from each partition."""
ROWS = 1_000
"""The maximum number of messages in one statement."""


def all_names(using: str, topic: str, known: Iterable[str]) -> list[str] | None:
    """Return all partitions that the log holds, and the ``known`` ones; None if there are too many.

    A query to the index finds the first name between each two known names. A loose index scan could do the same. But
    MariaDB reads a whole topic instead if its statistics show many short partitions in any topic.
    """
    names, empty = set(known), set[tuple[str, str | None]]()
    for _ in range(SEARCHES):
        if len(names) > NAMED:
            return None
        ordered = ["", *sorted(names)]
        gaps = [gap for gap in zip(ordered, [*ordered[1:], None], strict=True) if gap not in empty]
        found = {name for some in batches(gaps) for name in group_positions.between(using, topic, some)}
        if not found:
            return sorted(names)
        empty.update(gap for gap in gaps if not any(_inside(name, gap) for name in found))
        names |= found
    return None


def _inside(name: str, gap: tuple[str, str | None]) -> bool:
    return name > gap[0] and (gap[1] is None or name < gap[1])


@dataclass(frozen=True)
class PositionsRead:
    """The result of reading a group's positions in partitions.

    ``behind``: the partitions in which the group is behind. ``reached``: the highest ``scanned`` of the partitions, or
    the group's start. Most messages above it were not delivered yet. ``all``: the topic has no other partitions.
    ``capped``: the maximum number of partitions was read, so there may be more. ``moved_at``: when the group's position
    last changed in any of the partitions, in epoch milliseconds; 0 if unknown.
    """

    behind: list[Place]
    reached: int
    all: bool
    capped: bool
    moved_at: int = 0


def read_positions(
    using: str, group: str, topic: str, start: int, names: list[str] | None, seen: set[str], most: int
) -> PositionsRead:
    """Read a group's positions in partitions.

    ``names``: all partitions of the topic; None if there are too many. Then up to ``most`` partitions with leases are
    read. If there are no leases, up to ``most`` partitions with positions are read. If there are no positions, up to
    ``NAMED`` partitions are read that were ``seen`` in samples.
    """
    if names is not None:
        places = [one for some in batches(names) for one in group_positions.named(using, group, topic, some)]
    else:
        places = group_positions.leased(using, group, topic, most)
        if not places:
            places = group_positions.placed(using, group, topic, most)
        if not places and seen:
            places = group_positions.named(using, group, topic, sorted(seen)[:NAMED])
    places = [replace(one, acked=max(one.acked, start), scanned=max(one.scanned, start)) for one in places]
    behind = [one for one in places if one.newest > one.acked]
    reached = max([start, *(one.scanned for one in places)])
    moved_at = max((one.moved_at or 0 for one in places), default=0)
    return PositionsRead(behind, reached, names is not None, names is None and len(places) >= most, moved_at)


@dataclass
class Sums:
    """Counts of the rows that were read.

    ``pending``: messages for the group that were never delivered. ``opened``: messages that were delivered and are not
    done. ``first``: the lowest offset of both kinds. ``over``: true if there are no more rows to read.
    """

    pending: int = 0
    opened: int = 0
    first: int = OFFSET_END
    over: bool = False

    def add(self, rows: Sequence[Open]) -> None:
        for row in rows:
            self.pending += row.is_pending
            self.opened += not row.is_pending
            self.first = min(self.first, row.offset)


@dataclass(frozen=True)
class Open:
    """A message that a group is not done with."""

    offset: int
    partition: str
    is_pending: bool


def open_ones(
    using: str, group: str, rows: Sequence[message_pages.Place], acked: dict[str, int]
) -> list[Open]:
    """Return the open messages of the rows, in offset order.

    They are for the group, above the partition's watermark in ``acked``, and not done.
    """
    # A survey uses the same order, so that both send the same query. A page runs it only once.
    mine = sorted(
        (offset, name)
        for offset, name, target in rows
        if target in ("", group) and offset > acked.get(name, 0)
    )
    found = []
    for some in batches(mine, ROWS):
        states = samples.states(using, group, [offset for offset, _ in some])
        found += [
            Open(offset, name, offset not in states)
            for offset, name in some
            if offset not in states or not states[offset].acked
        ]
    return found


def count(
    using: str, group: str, topic: str, above: Sequence[tuple[str, int]], most: int, up_to: int = OFFSET_END
) -> Sums:
    """Count the open messages of partitions above an offset in each.

    It reads a few rows of each partition first, and then the next rows of longer partitions: about ``most`` rows in
    total. Messages above ``up_to`` do not count.
    """
    sums, left, each, places = Sums(), most, FIRST, dict(above)
    while places and left > 0:
        now = [*places.items()][: max(1, left // each)]
        for some in batches(now):
            rows = message_pages.undelivered(using, topic, some, each)
            sums.add(open_ones(using, group, [row for row in rows if row[0] <= up_to], {}))
            left -= len(rows)
            seen: dict[str, list[int]] = {name: [] for name, _ in some}
            for offset, name, _ in rows:
                seen[name].append(offset)
            for name, read in seen.items():
                if len(read) < each or max(read) >= up_to:
                    del places[name]
                else:
                    places[name] = max(read)
        each = max(FIRST, min(ROWS, left // max(1, len(places))))
    sums.over = not places
    return sums


def count_tail(using: str, group: str, topic: str, above: int, start: int, most: int) -> Sums:
    """Count the open messages among the first ``most`` rows of the topic above an offset."""
    sums = Sums()
    rows = message_pages.log_page(using, topic, None, (above, OFFSET_END), most, newest_first=False)
    sums.add(open_ones(using, group, rows, acked(using, group, topic, rows, start)))
    sums.over = len(rows) < most
    return sums


def acked(
    using: str, group: str, topic: str, rows: Sequence[message_pages.Place], start: int
) -> dict[str, int]:
    """Return the watermarks of the rows' partitions, by partition."""
    names = sorted({name for _, name, _ in rows})
    places: dict[str, offsets.Position] = {}
    for some in batches(names, ROWS):
        places |= offsets.positions(using, group, topic, some, start)
    return {name: place.acked for name, place in places.items()}


ROWS_PER_ROUND = (5, 50)
"""The number of rows of each partition in which the first and the second round search for an open message."""


def first_open(
    using: str, group: str, topic: str, above: Sequence[tuple[str, int]], below: int
) -> tuple[int, bool]:
    """Return the lowest open offset below ``below`` in the partitions, or ``below``; and whether this is certain.

    ``above``: each partition with its watermark. Usually few messages above a watermark are done. More are done while
    a transaction that publishes stays open.
    """
    places = dict(above)
    for each in ROWS_PER_ROUND:
        rows = []
        for some in batches([*places.items()]):
            rows += message_pages.undelivered(using, topic, some, each)
        below = min([below, *(row.offset for row in open_ones(using, group, rows, {}))])
        read: dict[str, list[int]] = {}
        for offset, name, _ in rows:
            read.setdefault(name, []).append(offset)
        places = {
            name: max(offsets)
            for name, offsets in read.items()
            if len(offsets) == each and max(offsets) < below
        }
        if not places:
            break
    return below, not places
