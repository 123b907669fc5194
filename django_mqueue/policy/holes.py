"""Offsets that were handed out but not seen yet: each may still commit.

A transaction that inserted offset 4 may commit after offset 5 was read. So whoever reads the log's tail keeps
the ranges it has not seen and looks there again, until settling shows that nothing below can come any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

Range = tuple[int, int]
"""First and last missing offset, both included."""


class Holes:
    """A sorted list of ranges of missing offsets: exact, so that nothing seen is ever taken for new."""

    def __init__(self) -> None:
        self.ranges: list[Range] = []

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __len__(self) -> int:
        return len(self.ranges)

    def add(self, first: int, last: int) -> None:
        """Add a range above all others."""
        if first <= last:
            self.ranges.append((first, last))

    def some(self, start: int, count: int) -> list[Range]:
        """Up to ``count`` ranges, cut off below ``start``."""
        at = self._at(start)
        chosen = self.ranges[at : at + count]
        if chosen and chosen[0][0] < start:
            chosen[0] = (start, chosen[0][1])
        return chosen

    def drop_settled(self, settled: int) -> None:
        """Forget what is at or below ``settled``. Only after a look that began when it was settled."""
        self.ranges = self.some(settled + 1, len(self.ranges))

    def take(self, offsets: Iterable[int]) -> set[int]:
        """Take single offsets out, which have appeared: those of them that had been missing."""
        taken = set()
        for offset in offsets:
            at = self._at(offset)
            if at < len(self.ranges) and self.ranges[at][0] <= offset:
                first, last = self.ranges[at]
                parts = ((first, offset - 1), (offset + 1, last))
                self.ranges[at : at + 1] = [part for part in parts if part[0] <= part[1]]
                taken.add(offset)
        return taken

    def _at(self, offset: int) -> int:
        """Index of the first range that ends at or above ``offset``."""
        at = bisect_left(self.ranges, (offset,))
        return at - 1 if at and self.ranges[at - 1][1] >= offset else at


def gaps(position: int, offsets: Iterable[int]) -> list[Range]:
    """The ranges between ``position`` and each of the rising ``offsets`` that are not among them."""
    found = []
    for offset in offsets:
        if offset > position + 1:
            found.append((position + 1, offset - 1))
        position = offset
    return found
