"""A walk over many partitions: a few rows of each at once, and one that has more read on by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..policy.history import Position, checked

EACH = 5
"""Rows of each partition at first."""
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
    """What one step of a walk found, and where it stands; ``looked``: partitions that were looked at for it."""

    found: list[Found]
    position: Position
    looked: int = 0


Walk = Iterator[Chunk]


@dataclass(frozen=True)
class ByPartition:
    """In the order of names. ``some(after, limit)``: the partitions that are worth a look among the next ``limit``,
    each with the place above which; the last one's name, None at the end. ``one``: the same place of a single one.
    ``read(places, limit)``: so many rows of each, in order; their positions are (partition, *place).
    """

    some: Callable[[str, int], tuple[list[tuple[str, Place]], str | None]]
    one: Callable[[str], Place]
    read: Callable[[Sequence[tuple[str, Place]], int], list[Found]]
    key: str | None
    width: int

    def walk(self, position: Position | None, chunk: int) -> Walk:
        """``width`` numbers make a place."""
        last: str | None = ""
        if position is not None:
            last, *place = checked(position, str, *[int] * self.width)
            yield from self._alone(position[0], tuple(place), chunk)
        elif self.key is not None:
            yield from self._alone(self.key, self.one(self.key), chunk)
        branches = max(chunk // EACH, 1)
        while last is not None and self.key is None:
            places, last = self.some(last, chunk)
            for at in range(0, len(places), branches):
                yield from self._batch(places[at : at + branches], chunk)
            if last is not None:
                yield Chunk([], self._end(last), chunk)

    def _batch(self, places: list[tuple[str, Place]], chunk: int) -> Walk:
        rows: dict[str, list[Found]] = {name: [] for name, _ in places}
        for found in self.read(places, EACH):
            rows[found.partition].append(found)
        ready: list[Found] = []
        looked = 0
        for name, mine in rows.items():
            ready += mine
            looked += not mine
            if len(mine) == EACH:
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
