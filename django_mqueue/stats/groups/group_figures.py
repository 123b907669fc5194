"""Statistics of groups. Messages are counted up to a limit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ... import conf
from ...policy.durations import moment, moment_or_none
from ...policy.names import scheduled_topic
from ...store import removal
from ...store.connection import session
from ...store.queries import bounded_counts, group_rows, group_summaries
from ..activity import Activity, activity
from ..results import AT_LEAST, LATELY, Figure, GroupFigures, cap_for, capped, row_cap
from .backlog import Backlog, backlogs

Pair = tuple[str, str]
NEWEST = 200
"""The number of newest dead letters of a topic that are read to count the recent ones."""


def read_group_figures(
    using: str, pairs: Sequence[Pair], count_limit: int | None = None
) -> dict[Pair, GroupFigures]:
    """Return the figures of the pairs of topic and group, by pair."""
    if not pairs:
        return {}
    with session.raises_not_migrated(using):
        return _Groups(using, pairs, count_limit).figures()


class _Groups:
    def __init__(self, using: str, pairs: Sequence[Pair], count_limit: int | None) -> None:
        self.using, self.pairs, self.now = using, pairs, group_rows.now_ms(using)
        self.row_cap = count_limit or row_cap(len(pairs))
        topics, groups = sorted({topic for topic, _ in pairs}), sorted({group for _, group in pairs})
        self.registered = group_summaries.registrations(using, topics, groups)
        unknown = [pair for pair in pairs if pair not in self.registered]
        self.removing = removal.unfinished_among(using, unknown) if unknown else set[Pair]()
        self.removing.update(pair for pair, one in self.registered.items() if one.resetting)
        self.alive = group_summaries.alive(
            using, [(topic, group, conf.lease_ms(topic)) for topic, group in pairs]
        )
        starts = {
            pair: self.registered[pair].start
            for pair in pairs
            if pair in self.registered and pair not in self.removing
        }
        self.backlogs = backlogs(using, starts, count_limit or cap_for(len(pairs)))
        self.scheduled = bounded_counts.targets(
            using, [scheduled_topic(topic) for topic in topics], self.row_cap + 1
        )
        self.dead_topics = {topic: conf.dead_letter_topic(topic) for topic in topics}
        self.dead = bounded_counts.dead_letters(
            using, [(self.dead_topics[topic], group) for topic, group in pairs], self.row_cap + 1
        )
        since = self.now - LATELY // timedelta(milliseconds=1)
        not_empty = sorted({topic for (topic, _), count in self.dead.items() if count})
        self.recent = bounded_counts.recent_dead_letters(using, not_empty, since, NEWEST)

    def figures(self) -> dict[Pair, GroupFigures]:
        oldest = sorted({one.oldest for one in self.backlogs.values() if one.oldest is not None})
        published = group_rows.published(self.using, oldest)
        return {pair: self._figures(*pair, published) for pair in self.pairs}

    def _figures(self, topic: str, group: str, published: dict[int, int]) -> GroupFigures:
        pair = (topic, group)
        registered, backlog = self.registered.get(pair), self.backlogs.get(pair)
        work = Activity()
        if registered is not None and backlog is not None and (backlog.recent or backlog.pending.value):
            moved_at = backlog.positions.moved_at if backlog.positions else 0
            work = activity(backlog.recent, self.now, max(registered.changed, moved_at))
        backlog = backlog or Backlog()
        at = published.get(backlog.oldest or 0)
        return GroupFigures(
            topic, group, moment(self.now), registered is not None,
            bool(registered and registered.paused), self.alive.get(pair, 0),
            backlog.pending, backlog.in_flight, backlog.waiting, self._scheduled(topic, group),
            capped(self.dead.get((self.dead_topics[topic], group), 0), self.row_cap),
            None if at is None else backlog.oldest, moment_or_none(at),
            None if at is None else timedelta(milliseconds=max(self.now - at, 0)),
            backlog.oldest_is_exact, self._dead_lately(topic, group),
            work.running_for, work.queued_for, work.usual, work.quiet_for, pair in self.removing,
            bool(registered and registered.reads_log),
        )  # fmt: skip

    def _scheduled(self, topic: str, group: str) -> Figure:
        targets = self.scheduled.get(scheduled_topic(topic), {})
        count = targets.get("", 0) + targets.get(group, 0)
        if sum(targets.values()) <= self.row_cap:
            return Figure(count)
        return Figure(min(count, self.row_cap), AT_LEAST)

    def _dead_lately(self, topic: str, group: str) -> Figure:
        dead = self.dead_topics[topic]
        of_all = sum(count for (topic, _), count in self.recent.items() if topic == dead)
        count = self.recent.get((dead, group), 0)
        return Figure(count, AT_LEAST) if of_all == NEWEST else Figure(count)
