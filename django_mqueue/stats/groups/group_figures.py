"""Statistics of groups: counted if few messages are open, estimated if many are open."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ... import conf
from ...policy.batching import batches
from ...policy.durations import moment
from ...policy.names import scheduled_topic
from ...store import removal
from ...store.connection import session
from ...store.queries import group_positions, message_pages, partition_progress
from ...store.queries.group_positions import Registered
from ...store.queries.partition_walk import OFFSET_END
from ..activity import Activity, activity
from ..derived import Derived, more_than
from ..results import EXACT, LATELY, Figure, GroupFigures
from ..sampling import IN_FLIGHT, PENDING, WAITING, Sampled, Stratum, figure
from ..surveying import Surveyor, size_for
from . import partitions
from .open_messages import OPEN, opened

Pair = tuple[str, str]
STEP = 60_000
PARTITIONS, SHARED = 6_000, 3_000
"""The maximum number of partitions that are read if a topic has too many to read all: for one pair, and for all pairs
together.
"""
FIRST_PARTITIONS = 100
"""The maximum number of partitions whose undelivered messages are counted: the furthest behind first."""
FIRST_ROWS = 100
"""The number of rows above the group's start that are searched for an open message."""


def group_figures(using: str, pairs: Sequence[Pair], exact: int | None = None) -> dict[Pair, GroupFigures]:
    """Return the figures of the pairs of topic and group, by pair."""
    if not pairs:
        return {}
    with session.migration_errors(using):
        return _Groups(using, pairs, exact).found()


class _Groups:
    def __init__(self, using: str, pairs: Sequence[Pair], exact: int | None) -> None:
        self.using, self.pairs = using, pairs
        topics, groups = sorted({topic for topic, _ in pairs}), sorted({group for _, group in pairs})
        self.surveyor = Surveyor(using, size_for(len(pairs), exact))
        self.registered = group_positions.registrations(using, topics, groups)
        gone = [pair for pair in pairs if pair not in self.registered]
        self.removing = removal.unfinished_among(using, gone) if gone else set[Pair]()
        self.removing.update(pair for pair, one in self.registered.items() if one.resetting)
        self.alive: dict[Pair, int] = {}
        for some in batches(pairs):
            asked = [(topic, group, conf.lease_ms(topic)) for topic, group in some]
            self.alive |= group_positions.alive(using, asked)
        self.derived = Derived(
            self.surveyor, [scheduled_topic(t) for t in topics], [conf.dead_letter_topic(t) for t in topics]
        )
        self.surveyor.prepare_times(topics, self.surveyor.now - STEP)
        self.most = PARTITIONS if len(pairs) == 1 else SHARED // len(pairs)
        self._names: dict[str, list[str] | None] = {}

    def found(self) -> dict[Pair, GroupFigures]:
        letters = self.derived.letters_of_groups(
            [(conf.dead_letter_topic(topic), group) for topic, group in self.pairs]
        )
        since = self.surveyor.now - LATELY // timedelta(milliseconds=1)
        lately = self.derived.letters_lately([topic for topic, _ in letters], since)
        return {
            (topic, group): self._told(
                topic, group, letters[dead, group], lately.get((dead, group), Figure(0))
            )
            for topic, group in self.pairs
            for dead in [conf.dead_letter_topic(topic)]
        }

    def _told(self, topic: str, group: str, dead: Figure, lately: Figure) -> GroupFigures:
        registered = self.registered.get((topic, group))
        nothing = Figure(0)
        pending = in_flight = waiting = nothing
        oldest, is_exact = OFFSET_END, True
        work = Activity()
        removing = (topic, group) in self.removing
        if registered is not None and not removing and self.surveyor.ends(topic) is not None:
            strata = self.surveyor.survey(
                topic, group, self.surveyor.now - STEP, STEP, whole=True, start=registered.start
            )
            if all(stratum.complete for stratum in strata):
                pending, in_flight, waiting = (_of(strata, s) for s in (PENDING, IN_FLIGHT, WAITING))
                oldest = _first_open(strata)
                rows, last = _rows(strata), registered.changed
            else:
                one = _Large(self, topic, group, registered, strata)
                pending, in_flight, waiting = one.pending(), *one.opened()
                oldest, is_exact = one.oldest()
                rows, last = [*_rows(strata), *one.delivered()], max(registered.changed, one.look.moved_at)
            work = activity(rows, self.surveyor.now, last)
        published = self._published(topic, oldest)
        return GroupFigures(
            topic, group, moment(self.surveyor.now), registered is not None,
            bool(registered and registered.paused), self.alive.get((topic, group), 0),
            pending, in_flight, waiting, self.derived.scheduled_for(scheduled_topic(topic), group), dead,
            None if published is None else oldest,
            None if published is None else moment(published),
            None if published is None else timedelta(milliseconds=max(self.surveyor.now - published, 0)),
            is_exact, lately, work.running_for, work.queued_for, work.usual, work.quiet_for, removing,
        )  # fmt: skip

    def _published(self, topic: str, offset: int) -> int | None:
        if offset == OFFSET_END:
            return None
        (rows,) = self.surveyor.read(topic, [(offset, offset + 1)], 1)
        return rows[0].published_at if rows else None

    def names(self, topic: str, group: str) -> list[str] | None:
        """Return the names of all partitions; None if there are too many."""
        if topic not in self._names:
            known = group_positions.known_names(self.using, group, topic, partitions.NAMED + 1)
            seen = self.surveyor.partitions_seen(topic)
            self._names[topic] = partitions.all_names(self.using, topic, known | seen)
        return self._names[topic]


def _rows(strata: Sequence[Stratum]) -> list[Sampled]:
    return [row for stratum in strata for row in stratum.rows]


def _of(strata: Sequence[Stratum], status: str) -> Figure:
    return figure(strata, lambda row: row.status == status)


def _first_open(strata: Sequence[Stratum]) -> int:
    opened = (PENDING, IN_FLIGHT, WAITING)
    return min((row.offset for one in strata for row in one.rows if row.status in opened), default=OFFSET_END)


class _Large:
    """The figures of a group whose topic has too many messages to read them one by one."""

    def __init__(
        self, of: _Groups, topic: str, group: str, registered: Registered, strata: Sequence[Stratum]
    ) -> None:
        self.using, self.topic, self.group, self.strata = of.using, topic, group, strata
        self.exact, self.start, self.most = of.surveyor.size.exact, registered.start, of.most
        names = of.names(topic, group)
        self.look = partitions.read_positions(
            of.using, group, topic, self.start, names, of.surveyor.partitions_seen(topic), self.most
        )
        self.first_found = OFFSET_END
        if len(of.pairs) == 1 and self.exact <= OPEN:
            # Other parts of a group's page use the same query, so that it runs only once.
            found = opened(of.using, topic, group)[: self.exact]
        else:
            leases = PARTITIONS if names is not None else self.most
            found = partition_progress.opened(of.using, group, topic, leases, self.exact)
        self._opened = found

    def pending(self) -> Figure:
        """Return the number of messages for the group that were never delivered."""
        late = [one for one in self.look.behind if one.newest > one.scanned]
        if self.look.all:
            sums = partitions.count(
                self.using, self.group, self.topic, [(p.partition, p.scanned) for p in late], self.exact
            )
            counted, over = sums.pending, sums.over
        else:
            above = partitions.count_tail(
                self.using, self.group, self.topic, self.look.reached, self.start, self.exact
            )
            # ``count_tail`` has counted the messages above ``reached``: here only those up to it count.
            few = sorted(late, key=lambda one: one.scanned)[:FIRST_PARTITIONS]
            sums = partitions.count(
                self.using, self.group, self.topic, [(p.partition, p.scanned) for p in few], self.exact,
                self.look.reached,
            )  # fmt: skip
            counted, over = above.pending + sums.pending, False
            self.first_found = above.first
        self.first_found = min(self.first_found, sums.first)
        if over:
            return Figure(counted, EXACT, 0, counted)
        return more_than(counted, _of(self.strata, PENDING))

    def opened(self) -> tuple[Figure, Figure]:
        """Return the number of messages in flight, and the number that wait for a retry."""
        in_flight = sum(1 for row in self._opened if row["in_flight"])
        waiting = len(self._opened) - in_flight
        if len(self._opened) < self.exact and not self.look.capped:
            return Figure(in_flight, least=in_flight), Figure(waiting, least=waiting)
        return (
            more_than(in_flight, _of(self.strata, IN_FLIGHT)),
            more_than(waiting, _of(self.strata, WAITING)),
        )

    def delivered(self) -> list[Sampled]:
        """Return the open messages that were delivered: in flight, or waiting for a retry."""
        return [
            Sampled(
                int(row["offset"]), 0, IN_FLIGHT if row["in_flight"] else WAITING,
                delivered_at=int(row["delivered_at"]), started=bool(row["handed"]),
            )
            for row in self._opened
            if row["delivered_to"]
        ]  # fmt: skip

    def oldest(self) -> tuple[int, bool]:
        """Return the lowest offset found that the group is not done with, and whether it is certainly the lowest."""
        rows = message_pages.log_page(
            self.using, self.topic, None, (self.start, OFFSET_END), FIRST_ROWS, newest_first=False
        )
        acked = partitions.acked(self.using, self.group, self.topic, rows, self.start)
        if opened := partitions.open_ones(self.using, self.group, rows, acked):
            return opened[0].offset, True
        found = min(
            [self.first_found, _first_open(self.strata), *(int(row["offset"]) for row in self._opened)]
        )
        is_exact = self.look.all
        for some in batches(sorted(self.look.behind, key=lambda one: one.acked), partitions.NAMED):
            todo = [(one.partition, one.acked) for one in some if one.acked < found - 1]
            if not todo:
                break
            first, over = partitions.first_open(self.using, self.group, self.topic, todo, found)
            found, is_exact = min(found, first), is_exact and over
        return found, is_exact
