"""A walk over many partitions. One statement reads a few rows of many partitions.

If a partition may have more rows, the walk then reads the rest of that partition alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...policy.message_query import OFFSET_MAX, Position, check_position

PARTITIONS = 500
"""The maximum number of partition names in one statement."""
BRANCHES = 50
"""The maximum number of partitions whose rows one statement reads."""
FIRST_READ_ROWS = range(5, 20)
"""The first read takes at least ``start`` and at most ``stop`` rows from each partition."""

PartitionPosition = tuple[int, ...]
"""A position inside a partition. The rows up to it have been read."""


@dataclass(frozen=True)
class Found:
    """A row that a walk found. ``position``: a later walk can continue after it."""

    offset: int
    partition: str
    target: str
    position: Position


@dataclass(frozen=True)
class Chunk:
    """The rows found by one step of a walk.

    ``position``: a later walk can continue after it. ``empty``: the number of partitions that had no row.
    """

    found: list[Found]
    position: Position
    empty: int = 0


Walk = Iterator[Chunk]


@dataclass(frozen=True)
class PartitionWalk:
    """A walk over partitions in the order of their names.

    * ``next_names(after, limit)`` returns the next partition names.
    * ``with_messages(names)`` returns the partitions that may hold matching rows, each with the position after which
      to read.
    * ``read(starts, limit)`` returns up to ``limit`` rows of each partition, in order.
    * ``key``: the only partition to read, or None for all.
    * ``width``: the number of integers in a ``PartitionPosition``. The position of a row is ``(partition, *numbers)``.
    """

    next_names: Callable[[str, int], list[str]]
    with_messages: Callable[[list[str]], list[tuple[str, PartitionPosition]]]
    read: Callable[[Sequence[tuple[str, PartitionPosition]], int], list[Found]]
    key: str | None
    width: int

    def walk(self, position: Position | None, chunk: int) -> Walk:
        after = ""
        starts = [] if self.key is None else self.with_messages([self.key])
        if position is not None:
            after, *rest = check_position(position, str, *[int] * self.width)
            starts = [(after, tuple(rest))]
        for name, start in starts:
            yield from self._alone(name, start, chunk)
        if self.key is None:
            yield from self._all(after, chunk)

    def _all(self, after: str, chunk: int) -> Walk:
        while names := self.next_names(after, min(chunk, PARTITIONS)):
            last = names[-1]
            starts = self.with_messages(names)
            for at in range(0, len(starts), BRANCHES):
                yield from self._batch(starts[at : at + BRANCHES], chunk)
            yield Chunk([], self._end(last), len(names) - len(starts))
            after = last

    def _batch(self, starts: list[tuple[str, PartitionPosition]], chunk: int) -> Walk:
        each = min(max(chunk // 10, FIRST_READ_ROWS.start), FIRST_READ_ROWS.stop)
        rows: dict[str, list[Found]] = {name: [] for name, _ in starts}
        for found in self.read(starts, each):
            rows[found.partition].append(found)
        found_rows: list[Found] = []
        empty = 0
        for name, own in rows.items():
            found_rows += own
            empty += not own
            if len(own) == each:
                yield Chunk(found_rows, own[-1].position, empty)
                yield from self._alone(name, own[-1].position[1:], chunk)
                found_rows, empty = [], 0
        yield Chunk(found_rows, self._end(starts[-1][0]), empty)

    def _alone(self, name: str, start: PartitionPosition, chunk: int) -> Walk:
        while found := self.read([(name, start)], chunk):
            start = found[-1].position[1:]
            yield Chunk(found, found[-1].position)
            if len(found) < chunk:
                return

    def _end(self, name: str) -> Position:
        return (name, *[OFFSET_MAX] * self.width)
