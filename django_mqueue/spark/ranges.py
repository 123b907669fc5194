"""Cutting the log into stretches of about equally many rows, however sparse its offsets are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

DENSE = 0.5
"""Where at least this part of all offsets are the topic's own, they are read as they lie, not by the topic's index."""


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
    """A stretch that one task reads. ``group``: of whom, where it is delivery state."""

    piece: Piece
    group: str = ""


def rows_each(total: int, most: int, pieces: int) -> int:
    """How many rows a range may have: at most ``most``, and so few that there are about ``pieces`` of them."""
    return max(1, min(most, math.ceil(total / max(1, pieces))))


def cuts(pieces: Sequence[int], number: int) -> list[tuple[int, int]]:
    """Where to cut pieces of these many rows so that ``number`` ranges have equally many, but for one.

    Each cut is behind so many rows (at least one) of the piece of that place.
    """
    total, found, place, before = sum(pieces), list[tuple[int, int]](), 0, 0
    for cut in range(1, number):
        goal = total * cut // number
        while before + pieces[place] < goal:
            before += pieces[place]
            place += 1
        found.append((place, goal - before))
    return found


def shares(total: int, backlogs: Sequence[int]) -> list[int]:
    """``total`` rows divided among topics by how many each has, at least one for each that has any.

    Where there are more such topics than rows, the first ones get one each: let those come first that had none before.
    The sum is ``total``, or all that there is.
    """
    if sum(backlogs) <= total:
        return list(backlogs)
    waiting = [place for place, backlog in enumerate(backlogs) if backlog]
    found = [0] * len(backlogs)
    for place in waiting[:total]:
        found[place] = 1
    spare, rest, before = max(0, total - len(waiting)), sum(backlogs) - len(waiting), 0
    for place in waiting:  # Beyond its first row each has its part of what is to spare, rounded in the sum.
        upto = before + backlogs[place] - 1
        found[place] += spare * upto // (rest or 1) - spare * before // (rest or 1)
        before = upto
    return found
