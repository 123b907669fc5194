"""A walk over many partitions: a few rows of each at once, and one that has more read on by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..policy.history import Position, checked

PARTITIONS = 500
"""Names in one statement."""
BRANCHES = 50
"""Partitions that one statement reads rows of."""
EACH = range(5, 20)
"""How many of each at first."""
END = (1 << 63) - 1
"""Above any offset, and after any time."""

Place = tuple[int, ...]
"""How far a partition has been read."""


@dataclass(frozen=True)
class Found:
    """A row to look at. ``position``: what a walk goes on behind."""

    offset: int
    partition: str
    target: str
    position: Position


@dataclass(frozen=True)
class Chunk:
    """What one step of a walk found, and where it stands; ``looked``: partitions that held nothing of it."""

    found: list[Found]
    position: Position
    looked: int = 0


Walk = Iterator[Chunk]


@dataclass(frozen=True)
class ByPartition:
    """In the order of names. ``listed(after, limit)``: the next names; ``worth(names)``: those of them that are
    worth a look, each with the place above which. ``one``: the same place of a single one.
    ``read(places, limit)``: so many rows of each, in order; their positions are (partition, *place), ``width`` numbers.
    """

    listed: Callable[[str, int], list[str]]
    worth: Callable[[list[str]], list[tuple[str, Place]]]
    one: Callable[[str], Place]
    read: Callable[[Sequence[tuple[str, Place]], int], list[Found]]
    key: str | None
    width: int

    def walk(self, position: Position | None, chunk: int) -> Walk:
        after = ""
        if position is not None:
            after, *place = checked(position, str, *[int] * self.width)
            yield from self._alone(after, tuple(place), chunk)
        elif self.key is not None:
            yield from self._alone(self.key, self.one(self.key), chunk)
        if self.key is None:
            yield from self._all(after, chunk)

    def _all(self, after: str, chunk: int) -> Walk:
        while names := self.listed(after, min(chunk, PARTITIONS)):
            last = names[-1]
            places = self.worth(names)
            for at in range(0, len(places), BRANCHES):
                yield from self._batch(places[at : at + BRANCHES], chunk)
            yield Chunk([], self._end(last), len(names) - len(places))
            after = last

    def _batch(self, places: list[tuple[str, Place]], chunk: int) -> Walk:
        each = min(max(chunk // 10, EACH.start), EACH.stop)
        rows: dict[str, list[Found]] = {name: [] for name, _ in places}
        for found in self.read(places, each):
            rows[found.partition].append(found)
        ready: list[Found] = []
        looked = 0
        for name, mine in rows.items():
            ready += mine
            looked += not mine
            if len(mine) == each:
                yield Chunk(ready, mine[-1].position, looked)
                yield from self._alone(name, mine[-1].position[1:], chunk)
                ready, looked = [], 0
        yield Chunk(ready, self._end(places[-1][0]), looked)

    def _alone(self, name: str, place: Place, chunk: int) -> Walk:
        while found := self.read([(name, place)], chunk):
            place = found[-1].position[1:]
            yield Chunk(found, found[-1].position)
            if len(found) < chunk:
                return

    def _end(self, name: str) -> Position:
        return (name, *[END] * self.width)
