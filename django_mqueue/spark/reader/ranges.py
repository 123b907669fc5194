"""Cut the log into stretches with about equally many rows, even if its offsets are sparse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

DENSE = 0.5
"""Read the primary key, not the topic's index, if at least this share of all offsets belongs to the topic."""


@dataclass(frozen=True)
class Piece:
    """A stretch of a topic's log: ``rows`` messages above one offset and up to another."""

    topic: str
    above: int
    upto: int
    rows: int

    @property
    def dense(self) -> bool:
        return self.rows >= DENSE * (self.upto - self.above)


@dataclass(frozen=True)
class Range:
    """A stretch for one task. ``group``: the group whose delivery state is read, if the table is delivery state."""

    piece: Piece
    group: str = ""


def rows_each(total: int, most: int, pieces: int) -> int:
    """Return the rows of a range: at most ``most``, and so few that there are about ``pieces`` ranges or more."""
    return max(1, min(most, math.ceil(total / max(1, pieces))))


def cuts(pieces: Sequence[int], number: int) -> list[tuple[int, int]]:
    """Return the ends of ``number`` ranges that cover pieces with these numbers of rows.

    The sizes of the ranges differ by at most one row. Each end is (place, rows): it comes after so many rows, at least
    one, of the piece at that place.
    """
    total, found, place, before = sum(pieces), list[tuple[int, int]](), 0, 0
    for cut in range(1, number + 1):
        goal = total * cut // number
        while before + pieces[place] < goal:
            before += pieces[place]
            place += 1
        found.append((place, goal - before))
    return found


def shares(total: int, backlogs: Sequence[int]) -> list[int]:
    """Divide ``total`` rows among topics in proportion to their backlogs. Return the rows of each topic.

    Each topic with a backlog gets at least one row. If there are more such topics than rows, the first topics get one
    row each. So the caller puts topics first that got no row before.
    """
    if sum(backlogs) <= total:
        return list(backlogs)
    waiting = [place for place, backlog in enumerate(backlogs) if backlog]
    found = [0] * len(backlogs)
    for place in waiting[:total]:
        found[place] = 1
    spare, rest, before = max(0, total - len(waiting)), sum(backlogs) - len(waiting), 0
    for place in waiting:  # Rounding the running sum keeps the total exact.
        upto = before + backlogs[place] - 1
        found[place] += spare * upto // (rest or 1) - spare * before // (rest or 1)
        before = upto
    return found
