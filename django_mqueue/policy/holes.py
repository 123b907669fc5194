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
    """A sorted list of ranges of missing offsets. Beyond ``limit`` ranges, neighbours are merged."""

    def __init__(self, limit: int = 400) -> None:
        self.ranges: list[Range] = []
        self.limit = limit

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def add(self, first: int, last: int) -> None:
        """Add a range above all others."""
        if first <= last:
            self.ranges.append((first, last))
            if len(self.ranges) > self.limit:
                self._merge()

    def _merge(self) -> None:
        """Halve the ranges by closing every second gap: looking twice at what was seen does no harm."""
        merged = []
        for i in range(0, len(self.ranges), 2):
            pair = self.ranges[i : i + 2]
            merged.append((pair[0][0], pair[-1][1]))
        self.ranges = merged

    def drop_settled(self, settled: int) -> None:
        """Forget what is at or below ``settled``. Only after a look that began when it was settled."""
        self.ranges = [(max(first, settled + 1), last) for first, last in self.ranges if last > settled]

    def seen(self, offsets: Iterable[int]) -> None:
        """Take single offsets out: they have appeared."""
        for offset in offsets:
            at = bisect_left(self.ranges, (offset + 1,)) - 1
            if at >= 0 and self.ranges[at][0] <= offset <= self.ranges[at][1]:
                first, last = self.ranges[at]
                self.ranges[at : at + 1] = [
                    part for part in ((first, offset - 1), (offset + 1, last)) if part[0] <= part[1]
                ]
        while len(self.ranges) > self.limit:
            self._merge()


def gaps(position: int, offsets: Iterable[int]) -> list[Range]:
    """The ranges between ``position`` and each of the rising ``offsets`` that are not among them."""
    found = []
    for offset in offsets:
        if offset > position + 1:
            found.append((position + 1, offset - 1))
        position = offset
    return found
