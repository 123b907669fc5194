"""Missing offsets, which the tailer has not seen yet. A transaction may still commit each of them.

A transaction that inserted offset 4 may commit after offset 5 was read. So the tailer keeps the ranges that it has not
seen. It reads these ranges again until settling shows that no message can appear there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

Range = tuple[int, int]
"""First and last missing offset, both included."""


class MissingOffsets:
    """A sorted list of ranges of missing offsets. It is exact, so that no message is taken as new twice."""

    def __init__(self) -> None:
        self.ranges: list[Range] = []

    def __len__(self) -> int:
        return len(self.ranges)

    def add(self, first: int, last: int) -> None:
        """Add a range above all other ranges."""
        if first <= last:
            self.ranges.append((first, last))

    def some(self, start: int, count: int) -> list[Range]:
        """Return up to ``count`` ranges, without the offsets below ``start``."""
        at = self._at(start)
        ranges = self.ranges[at : at + count]
        if ranges and ranges[0][0] < start:
            ranges[0] = (start, ranges[0][1])
        return ranges

    def drop_settled(self, settled: int) -> None:
        """Remove the offsets up to ``settled``. Call this only after a read that began when they were settled."""
        self.ranges = self.some(settled + 1, len(self.ranges))

    def take(self, offsets: Iterable[int]) -> set[int]:
        """Remove single offsets that have appeared. Return the offsets that were missing."""
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
        """Return the index of the first range that ends at or above ``offset``."""
        at = bisect_left(self.ranges, (offset,))
        return at - 1 if at and self.ranges[at - 1][1] >= offset else at
