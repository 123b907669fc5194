"""The partitions of a topic as a group stands in them, looked at one by one: as many as there are, or are allowed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..store import history, offsets, samples, standing
from ..store.standing import Place
from .by_partition import END
from .loading import batches

NAMED = 200
"""A topic with so many partitions at most has all of them looked at; of others no more is known than their leases
tell."""
SEARCHES = 20
"""How often the log is asked for partitions between those that are known."""
FIRST = 5
"""Rows of each partition that are looked at first."""
ROWS = 1_000
"""Rows in one statement."""


def all_names(using: str, topic: str, known: Iterable[str]) -> list[str] | None:
    """All partitions that the log holds, and those ``known``; None if there are too many.

    The index is asked for the first name between each two. (A loose scan would do, but MariaDB reads a whole topic
    instead where its statistics see many short partitions, in whichever topic.)
    """
    names, empty = set(known), set[tuple[str, str | None]]()
    for _ in range(SEARCHES):
        if len(names) > NAMED:
            return None
        ordered = ["", *sorted(names)]
        gaps = [gap for gap in zip(ordered, [*ordered[1:], None], strict=True) if gap not in empty]
        found = {name for some in batches(gaps) for name in standing.between(using, topic, some)}
        if not found:
            return sorted(names)
        empty.update(gap for gap in gaps if not any(_inside(name, gap) for name in found))
        names |= found
    return None


def _inside(name: str, gap: tuple[str, str | None]) -> bool:
    return name > gap[0] and (gap[1] is None or name < gap[1])


@dataclass(frozen=True)
class Look:
    """Partitions that were looked at: those that a group is behind in. ``all``: the topic has no others; ``capped``: it
    was looked at as many as were allowed.

    ``reached``: an offset that the group has come to. Of what is above it has mostly been given nothing yet.
    ``moved_at``: when the group last came further in any of them, 0 where that is not known.
    """

    behind: list[Place]
    reached: int
    all: bool
    capped: bool
    moved_at: int = 0


def look(
    using: str, group: str, topic: str, start: int, names: list[str] | None, seen: set[str], most: int
) -> Look:
    """At the ``names``, which are all; or at ``most`` of those with leases, or, where there are none, positions; or at
    some that were ``seen``."""
    if names is not None:
        places = [one for some in batches(names) for one in standing.named(using, group, topic, some)]
    else:
        places = standing.leased(using, group, topic, most)
        if not places:
            places = standing.placed(using, group, topic, most)
        if not places and seen:
            places = standing.named(using, group, topic, sorted(seen)[:NAMED])
    places = [replace(one, acked=max(one.acked, start), scanned=max(one.scanned, start)) for one in places]
    behind = [one for one in places if one.newest > one.acked]
    reached = max([start, *(one.scanned for one in places)])
    moved_at = max((one.moved_at or 0 for one in places), default=0)
    return Look(behind, reached, names is not None, names is None and len(places) >= most, moved_at)


@dataclass
class Sums:
    """Of rows that were looked at: how many are ``pending`` for the group, how many ``opened`` (given to it, and not
    done), the ``first`` offset of either. ``over``: there were no more rows to look at."""

    pending: int = 0
    opened: int = 0
    first: int = END
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


def open_ones(using: str, group: str, rows: Sequence[history.Place], acked: dict[str, int]) -> list[Open]:
    """Those of the rows that are for the group, above their partition's watermark, and not done: in offset order."""
    # A survey asks in this order, too: what a page has looked at for one of its numbers it does not ask for again.
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
    using: str, group: str, topic: str, above: Sequence[tuple[str, int]], most: int, up_to: int = END
) -> Sums:
    """Of the rows of partitions above offsets: a few of each, then more where there are more, about ``most`` in all.
    Those above ``up_to`` do not count."""
    sums, left, each, places = Sums(), most, FIRST, dict(above)
    while places and left > 0:
        now = [*places.items()][: max(1, left // each)]
        for some in batches(now):
            rows = history.undelivered(using, topic, some, each)
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
    """Of the first ``most`` rows of the topic above an offset."""
    sums = Sums()
    rows = history.log_page(using, topic, None, (above, END), most, newest_first=False)
    sums.add(open_ones(using, group, rows, acked(using, group, topic, rows, start)))
    sums.over = len(rows) < most
    return sums


def acked(using: str, group: str, topic: str, rows: Sequence[history.Place], start: int) -> dict[str, int]:
    """The watermarks of the rows' partitions."""
    names = sorted({name for _, name, _ in rows})
    places: dict[str, offsets.Position] = {}
    for some in batches(names, ROWS):
        places |= offsets.positions(using, group, topic, some, start)
    return {name: place.acked for name, place in places.items()}


LOOKS = (5, 50)
"""Rows of a partition that are looked at for one that is not done: the first look, and the second."""


def first_open(
    using: str, group: str, topic: str, above: Sequence[tuple[str, int]], below: int
) -> tuple[int, bool]:
    """The first offset below a limit that is not done in partitions above their watermarks, or that limit; and whether
    that is certain. (What is done above a watermark is little, but while a transaction that publishes stays open.)"""
    places = dict(above)
    for each in LOOKS:
        rows = []
        for some in batches([*places.items()]):
            rows += history.undelivered(using, topic, some, each)
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
