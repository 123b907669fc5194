"""Cut the log into ranges of offsets with about equally many rows. The offsets of a topic may have large gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

DENSE = 0.5
"""Read the primary key, not the topic's index, if the topic has at least this share of the offsets in a range."""


@dataclass(frozen=True)
class Range:
    """A range of a topic's offsets: above ``above``, up to and including ``upto``. It holds ``rows`` messages.

    ``group``: the group whose delivery state is read; '' to read messages.
    """

    topic: str
    above: int
    upto: int
    rows: int
    group: str = ""

    @property
    def dense(self) -> bool:
        return self.rows >= DENSE * (self.upto - self.above)


def rows_each(total: int, most: int, least_ranges: int) -> int:
    """Return the rows of each range: at most ``most``, and few enough for about ``least_ranges`` ranges or more."""
    return max(1, min(most, math.ceil(total / max(1, least_ranges))))


def cuts(counts: Sequence[int], number: int) -> list[tuple[int, int]]:
    """Return the ends of ``number`` ranges that cover ranges with these numbers of rows.

    Their sizes differ by at most one row. An end (index, rows) lies after the first ``rows`` rows of the given range at
    ``index``.
    """
    total, found, index, before = sum(counts), list[tuple[int, int]](), 0, 0
    for cut in range(1, number + 1):
        goal = total * cut // number
        while before + counts[index] < goal:
            before += counts[index]
            index += 1
        found.append((index, goal - before))
    return found


def shares(total: int, backlogs: Sequence[int]) -> list[int]:
    """Divide ``total`` rows among topics in proportion to their backlogs. Return the rows of each topic.

    Each topic with a backlog gets at least one row. If there are more such topics than rows, the first ones get one row
    each. So the caller should put topics first that got no row last time.
    """
    if sum(backlogs) <= total:
        return list(backlogs)
    waiting = [index for index, backlog in enumerate(backlogs) if backlog]
    found = [0] * len(backlogs)
    for index in waiting[:total]:
        found[index] = 1
    spare, rest, before = max(0, total - len(waiting)), sum(backlogs) - len(waiting), 0
    for index in waiting:  # Rounding the running sum keeps the total exact.
        upto = before + backlogs[index] - 1
        found[index] += spare * upto // (rest or 1) - spare * before // (rest or 1)
        before = upto
    return found
