"""Where messages are looked for: sources, each a walk through one index that can be left and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import conf
from ..policy.history import DEAD, IN_FLIGHT, PENDING, SCHEDULED, SLACK_MS, WAITING, Position, Wanted, checked
from ..policy.names import SCHEDULED_SUFFIX
from ..store import history, letters, log, offsets
from .by_partition import END, ByPartition, Chunk, Found, Place, Walk
from .registration import last_before, newest_before

IDS = 500
"""Messages of one id: more than there ever are."""


@dataclass(frozen=True)
class Source:
    """``name`` tells cursors of different walks apart; ``place``: log, scheduled or dead. ``by_time``: the topic whose
    rows come in the order of their times, if they do."""

    name: str
    place: str
    walk: Callable[[Position | None, int], Walk]
    by_time: str | None = None


def source_of(using: str, wanted: Wanted, start: int, *, newest_first: bool) -> Source:
    """The cheapest walk that finds what is wanted. ``start``: of the group's registration."""
    topic, status = wanted.topic, wanted.status
    ways = _Ways(using, wanted, start, newest_first)
    order = "newest" if newest_first else "oldest"
    if wanted.offset is not None:
        place = {SCHEDULED: topic + SCHEDULED_SUFFIX, DEAD: conf.dead_letter_topic(topic)}.get(
            status or "", topic
        )
        return Source(
            "offset", status if status in (SCHEDULED, DEAD) else "log", ways.at(place, wanted.offset)
        )
    if status == SCHEDULED:
        scheduled = topic + SCHEDULED_SUFFIX
        return Source(f"scheduled-{order}", SCHEDULED, ways.through(scheduled), by_time=scheduled)
    if status == DEAD:
        dead = conf.dead_letter_topic(topic)
        if wanted.id is not None:
            return Source("dead-id", DEAD, ways.letters_by_id)
        return Source(f"dead-{order}", DEAD, ways.through(dead), by_time=dead)
    if wanted.id is not None:
        return Source("id", "log", ways.by_id)
    if status in (IN_FLIGHT, WAITING):
        if newest_first:
            raise ValueError(f"newest_first does not go with status {status!r}: these come by key and time")
        return Source(status, "log", ways.open_ones().walk)
    if status == PENDING and not newest_first:
        return Source(status, "log", ways.pending().walk)
    return Source(order, "log", ways.through(topic), by_time=topic)


@dataclass(frozen=True)
class _Ways:
    using: str
    wanted: Wanted
    start: int
    newest_first: bool

    @property
    def group(self) -> str:
        assert self.wanted.group is not None
        return self.wanted.group

    def through(self, topic: str) -> Callable[[Position | None, int], Walk]:
        """A topic in the order of offsets, or one partition of it, from where its time begins."""

        def walk(position: Position | None, chunk: int) -> Walk:
            low, high = 0, END
            if position is not None:
                (at,) = checked(position, int)
                low, high = (0, at) if self.newest_first else (at, END)
            elif self.newest_first and self.wanted.before is not None:
                high = below_by_time(self.using, topic, self.wanted.before)
            elif not self.newest_first and self.wanted.after is not None:
                low = above_by_time(self.using, topic, self.wanted.after)
            while rows := history.log_page(
                self.using, topic, self.wanted.key, (low, high), chunk, newest_first=self.newest_first
            ):
                last = rows[-1][0]
                yield Chunk([Found(*row, position=(row[0],)) for row in rows], (last,))
                if len(rows) < chunk:
                    return
                low, high = (low, last) if self.newest_first else (last, high)

        return walk

    def at(self, topic: str, offset: int) -> Callable[[Position | None, int], Walk]:
        """The one row."""

        def walk(position: Position | None, chunk: int) -> Walk:
            if position is None:
                bounds = (offset - 1, offset + 1)
                rows = history.log_page(self.using, topic, self.wanted.key, bounds, 1, newest_first=False)
                yield Chunk([Found(*row, position=(row[0],)) for row in rows], (offset,))

        return walk

    def by_id(self, position: Position | None, chunk: int) -> Walk:
        """An id is unique in its partition: without a key all are asked, some at a time. What came back with another
        id has this one beside it."""
        topic, id, key = self.wanted.topic, self.wanted.id, self.wanted.key
        assert id is not None
        stage, after, above = (0, "", 0) if position is None else checked(position, int, str, int)
        if stage == 0:
            rows = history.by_original_id(self.using, topic, (), id, IDS)
            if key is not None:
                rows = sorted(
                    [row for row in rows if row[1] == key] + history.by_id(self.using, topic, [key], id)
                )
            yield Chunk([Found(*row, position=(0, "", row[0])) for row in rows if row[0] > above], (1, "", 0))
            above = 0
        while key is None and (names := history.partitions(self.using, topic, after, chunk)):
            rows = [row for row in history.by_id(self.using, topic, names, id) if row[0] > above]
            found = [Found(*row, position=(1, after, row[0])) for row in rows]
            after, above = names[-1], 0
            yield Chunk(found, (1, after, 0), len(names))

    def letters_by_id(self, position: Position | None, chunk: int) -> Walk:
        dead, id, key = conf.dead_letter_topic(self.wanted.topic), self.wanted.id, self.wanted.key
        assert id is not None
        (above,) = (0,) if position is None else checked(position, int)
        groups = {self.group} if self.wanted.group is not None else letters.groups(self.using, dead)
        rows = history.by_original_id(self.using, dead, sorted(groups), id, IDS) if groups else []
        chosen = [row for row in rows if key in (None, row[1]) and row[0] > above]
        yield Chunk([Found(*row, position=(row[0],)) for row in chosen], (END,))

    def pending(self) -> ByPartition:
        """From where all of a partition has been delivered: what is done is not looked at."""
        topic, low = self.wanted.topic, self.start
        if self.wanted.after is not None:
            low = max(low, above_by_time(self.using, topic, self.wanted.after))

        def listed(after: str, limit: int) -> list[str]:
            return history.partitions(self.using, topic, after, limit)

        def worth(names: list[str]) -> list[tuple[str, Place]]:
            found = history.news(self.using, self.group, topic, low, names)
            return [(one.partition, (one.scanned,)) for one in found if one.newest > one.scanned]

        def one(name: str) -> Place:
            return (offsets.positions(self.using, self.group, topic, [name], low)[name].scanned,)

        def read(places: Sequence[tuple[str, Place]], limit: int) -> list[Found]:
            rows = history.undelivered(self.using, topic, [(name, place[0]) for name, place in places], limit)
            return sorted((Found(*row, position=(row[1], row[0])) for row in rows), key=lambda f: f.position)

        return ByPartition(listed, worth, one, read, self.wanted.key, 1)

    def open_ones(self) -> ByPartition:
        """By due time: only what is in flight, or waits, is looked at."""
        topic, in_flight = self.wanted.topic, self.wanted.status == IN_FLIGHT

        def listed(after: str, limit: int) -> list[str]:
            return history.leased(self.using, self.group, topic, after, limit)

        def worth(names: list[str]) -> list[tuple[str, Place]]:
            found = history.with_open_ones(self.using, self.group, topic, names[0], names[-1], in_flight)
            return [(name, (0, 0)) for name in found]

        def read(places: Sequence[tuple[str, Place]], limit: int) -> list[Found]:
            above = [(name, place[0], place[1]) for name, place in places]
            rows = sorted(history.open_ones(self.using, self.group, topic, above, in_flight, limit))
            return [Found(offset, name, "", (name, due, offset)) for name, due, offset in rows]

        return ByPartition(listed, worth, lambda name: (0, 0), read, self.wanted.key, 2)


def above_by_time(using: str, topic: str, after: int) -> int:
    """Return an offset up to which nothing was published at ``after`` or later."""
    return last_before(using, topic, after, log.newest(using, topic), SLACK_MS)


def below_by_time(using: str, topic: str, before: int) -> int:
    """Return an offset from which on nothing was published before ``before``."""
    return newest_before(using, topic, before, log.newest(using, topic), SLACK_MS) + 1
