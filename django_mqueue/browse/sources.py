"""Sources of messages for a search. Each source is a walk through one index, which a later call can continue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from .. import conf
from ..policy.batching import batches
from ..policy.message_query import (
    DEAD,
    IN_FLIGHT,
    OFFSET_MAX,
    PENDING,
    SCHEDULED,
    SLACK_MS,
    WAITING,
    MessageQuery,
    Position,
    check_position,
)
from ..policy.names import scheduled_topic
from ..service.registration import last_before, newest_before
from ..store import dead_letters, log
from ..store.queries import message_pages, partition_progress, skip_scan
from ..store.queries.partition_walk import Chunk, Found, PartitionPosition, PartitionWalk, Walk

IDS = 500
"""The maximum number of rows in a step of a search by id. Messages of several keys can have the same id."""

_COPIES, _PARTITIONS, _DEAD_LETTERS = range(3)
"""The parts of a search by id, in its positions."""


@dataclass(frozen=True)
class Source:
    """A walk that finds messages, and its name.

    ``name`` is part of each cursor, so that the cursor of another walk is refused. ``location``: ``"log"``,
    ``"scheduled"`` or ``"dead"``. ``by_time``: the topic, if the walk returns its rows in the order of publication;
    else None.
    """

    name: str
    location: str
    walk: Callable[[Position | None, int], Walk]
    by_time: str | None = None


def stored_in(query: MessageQuery) -> str:
    """Return the topic in which the messages with the query's status are stored."""
    topics = {SCHEDULED: scheduled_topic(query.topic), DEAD: conf.dead_letter_topic(query.topic)}
    return topics.get(query.status or "", query.topic)


def source_of(using: str, query: MessageQuery, start: int, *, newest_first: bool) -> Source:
    """Return the cheapest source for the messages of a query.

    ``start``: the offset above which the group's registration starts. Raises ``ValueError`` if ``newest_first`` is
    combined with the status in flight or waiting: their walk is in the order of keys and due times.
    """
    topic, status = query.topic, query.status
    walks = _Walks(using, query, start, newest_first)
    order = "newest" if newest_first else "oldest"
    stored, location = stored_in(query), status if status in (SCHEDULED, DEAD) else "log"
    if query.offset is not None:
        return Source("offset", location, walks.through(stored, query.offset))
    if status == DEAD and query.id is not None:
        return Source("dead-id", DEAD, walks.dead_letters_by_id)
    if status in (SCHEDULED, DEAD):
        return Source(f"{status}-{order}", location, walks.through(stored), by_time=stored)
    if query.id is not None:
        return Source("id", "log", walks.by_id)
    if status in (IN_FLIGHT, WAITING):
        if newest_first:
            raise ValueError(
                f"newest_first is not available with status {status!r}: these messages are ordered by key and time"
            )
        return Source(status, "log", walks.open_deliveries().walk)
    if status == PENDING and not newest_first:
        return Source(status, "log", walks.pending().walk)
    return Source(order, "log", walks.through(topic), by_time=topic)


@dataclass(frozen=True)
class _Walks:
    using: str
    query: MessageQuery
    start: int
    newest_first: bool

    @property
    def group(self) -> str:
        assert self.query.group is not None
        return self.query.group

    def through(self, topic: str, offset: int | None = None) -> Callable[[Position | None, int], Walk]:
        """Return a walk over a topic, or over one of its partitions, in the order of offsets.

        It begins at the wanted time: at ``before`` if ``newest_first`` is set, else at ``after``. ``offset``: it finds
        only the row at this offset.
        """

        def walk(position: Position | None, chunk: int) -> Walk:
            low, high = (0, OFFSET_MAX) if offset is None else (offset - 1, offset + 1)
            if position is not None:
                (at,) = check_position(position, int)
                low, high = (low, min(at, high)) if self.newest_first else (max(at, low), high)
            elif offset is None and self.newest_first and self.query.before is not None:
                high = below_by_time(self.using, topic, self.query.before)
            elif offset is None and not self.newest_first and self.query.after is not None:
                low = above_by_time(self.using, topic, self.query.after)
            while rows := message_pages.log_page(
                self.using, topic, self.query.key, (low, high), chunk, newest_first=self.newest_first
            ):
                last = rows[-1][0]
                yield Chunk([Found(*row, position=(row[0],)) for row in rows], (last,))
                if len(rows) < chunk:
                    return
                low, high = (low, last) if self.newest_first else (last, high)

        return walk

    def by_id(self, position: Position | None, chunk: int) -> Walk:
        """Find the rows with the wanted id.

        A message that came back to the log is stored under a new id; its ``original_id`` is the wanted one. These rows
        come first. Then all partitions are searched, ``chunk`` at a time, because an id is unique only within a
        partition. With a key, its partition comes first. Last come the dead letters, if this is a dead-letter topic.
        """
        topic, key = self.query.topic, self.query.key
        parts = (
            (_COPIES, _PARTITIONS, _DEAD_LETTERS) if key is None else (_PARTITIONS, _COPIES, _DEAD_LETTERS)
        )
        start, after, above = (
            (parts[0], "", 0) if position is None else check_position(position, int, str, int)
        )
        for part in parts[parts.index(start) :]:
            if part == _PARTITIONS:
                yield from self._in_partitions(after, above, chunk)
            else:
                groups = None if part == _COPIES else dead_letters.groups(self.using, topic)
                yield from self._by_original_id(topic, groups, above, (part, ""))
            after, above = "", 0

    def _in_partitions(self, after: str, above: int, chunk: int) -> Walk:
        """Find the rows with the wanted id in the partitions after the name ``after``.

        ``above``: in the first ``chunk`` partitions, find only rows above this offset.
        """
        topic, id, key = self.query.topic, self.query.id, self.query.key
        assert id is not None

        def next_names() -> list[str]:
            if key is None:
                return skip_scan.partitions(topic).next(self.using, after, chunk)
            return [] if after == key else [key]

        while names := next_names():
            rows = [row for row in message_pages.by_id(self.using, topic, names, id) if row[0] > above]
            found = [Found(*row, position=(_PARTITIONS, after, row[0])) for row in rows]
            after, above = names[-1], 0
            yield Chunk(found, (_PARTITIONS, after, 0), len(names))

    def _by_original_id(self, topic: str, groups: set[str] | None, above: int, part: Position) -> Walk:
        """Find the dead letters of ``groups`` with the wanted original id.

        ``groups``: None finds the messages with this original id that are not dead letters.

        ``part``: the beginning of the positions.
        """
        id, key = self.query.id, self.query.key
        assert id is not None
        if groups is not None and not groups:
            return
        rows = message_pages.by_original_id(self.using, topic, sorted(groups or ()), id)
        for some in batches([row for row in rows if row[0] > above and key in (None, row[1])], IDS):
            yield Chunk([Found(*row, position=(*part, row[0])) for row in some], (*part, some[-1][0]))

    def dead_letters_by_id(self, position: Position | None, chunk: int) -> Walk:
        dead = conf.dead_letter_topic(self.query.topic)
        (above,) = (0,) if position is None else check_position(position, int)
        groups = {self.group} if self.query.group is not None else dead_letters.groups(self.using, dead)
        yield from self._by_original_id(dead, groups, above, ())

    def pending(self) -> PartitionWalk:
        """Return a walk over each partition, above the offset up to which everything was delivered."""
        topic, low = self.query.topic, self.start
        if self.query.after is not None:
            low = max(low, above_by_time(self.using, topic, self.query.after))
        next_names = partial(skip_scan.partitions(topic).next, self.using)

        def with_messages(names: list[str]) -> list[tuple[str, PartitionPosition]]:
            (found,) = partition_progress.progress(self.using, [(topic, self.group, low, names)])
            return [(one.partition, (one.scanned,)) for one in found if one.newest > one.scanned]

        def read(starts: Sequence[tuple[str, PartitionPosition]], limit: int) -> list[Found]:
            rows = message_pages.rows_above(
                self.using, topic, [(name, start[0]) for name, start in starts], limit
            )
            return sorted((Found(*row, position=(row[1], row[0])) for row in rows), key=lambda f: f.position)

        return PartitionWalk(next_names, with_messages, read, self.query.key, 1)

    def open_deliveries(self) -> PartitionWalk:
        """Return a walk over the open messages of each partition, in the order of due times.

        It reads only messages that are in flight, or only messages that wait for a retry.
        """
        topic, in_flight = self.query.topic, self.query.status == IN_FLIGHT
        next_names = partial(message_pages.leased, self.using, self.group, topic)

        def with_messages(names: list[str]) -> list[tuple[str, PartitionPosition]]:
            found = message_pages.with_open_deliveries(
                self.using, self.group, topic, names[0], names[-1], in_flight
            )
            return [(name, (0, 0)) for name in found]

        def read(starts: Sequence[tuple[str, PartitionPosition]], limit: int) -> list[Found]:
            above = [(name, start[0], start[1]) for name, start in starts]
            rows = sorted(
                message_pages.open_deliveries(self.using, self.group, topic, above, in_flight, limit)
            )
            return [Found(offset, name, "", (name, due, offset)) for name, due, offset in rows]

        return PartitionWalk(next_names, with_messages, read, self.query.key, 2)


def above_by_time(using: str, topic: str, after: int) -> int:
    """Return an offset up to which no message was published at ``after`` (epoch milliseconds) or later."""
    return last_before(using, topic, after, log.newest(using, topic), SLACK_MS)


def below_by_time(using: str, topic: str, before: int) -> int:
    """Return an offset. All messages from it on were published at ``before`` or later (epoch milliseconds)."""
    return newest_before(using, topic, before, log.newest(using, topic), SLACK_MS) + 1
