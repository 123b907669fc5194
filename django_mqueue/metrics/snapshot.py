"""The figures of all topics and groups at one moment, read from the database for a scrape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from ..stats import topic_list, triage
from ..stats.alarms import ZERO
from ..stats.caching import cached
from ..stats.groups.group_figures import read_group_figures
from ..stats.results import GroupFigures, Hold, KnownTopic, TopicFigures
from ..stats.retention_blockers import holds
from ..stats.summaries import over_retention
from ..stats.topic_figures import read_topic_figures, settled_lag

TOPICS_MAX = GROUPS_MAX = 200
"""The maximum number of topics, and of pairs of topic and group, with metrics."""
BLOCKERS_MAX = 10
"""The maximum number of topics whose retention blockers are read: those whose deletion is overdue for longest."""


@dataclass(frozen=True)
class Snapshot:
    """The figures for one scrape.

    ``groups_of``: the number of registered groups of each topic. ``settled_lag``, ``overdue``: by topic.

    ``overdue``: the time past retention of the oldest message. ``topics_left_out``, ``groups_left_out``: the numbers
    of topics and of pairs above the maximum.
    """

    topics: Sequence[TopicFigures]
    groups: Sequence[GroupFigures]
    groups_of: Mapping[str, int]
    settled_lag: Mapping[str, timedelta]
    overdue: Mapping[str, timedelta]
    blockers: Sequence[Hold]
    topics_left_out: int
    groups_left_out: int


def snapshot(using: str, max_age: float) -> Snapshot:
    """Return the figures. They may be ``max_age`` seconds old, from Django's cache."""
    return cached(using, ("metrics",), max_age, lambda: _read(using))


def _read(using: str) -> Snapshot:
    known = sorted(topic_list.known_topics(using).values(), key=lambda one: one.topic)
    number = sum(len(one.groups) for one in known)
    if len(known) > TOPICS_MAX or number > GROUPS_MAX:
        known = triage.worst_first(using, known)
    chosen = known[:TOPICS_MAX]
    pairs = [(one.topic, group) for one in chosen for group in one.groups][:GROUPS_MAX]
    figures = read_topic_figures(using, [one.topic for one in chosen])
    overdue = {topic: max(over_retention(one), ZERO) for topic, one in figures.items()}
    return Snapshot(
        list(figures.values()),
        list(read_group_figures(using, pairs).values()),
        {one.topic: len(one.groups) for one in chosen},
        settled_lag(using, [one.topic for one in chosen if one.groups]),
        overdue,
        _blockers(using, chosen, overdue),
        len(known) - len(chosen),
        number - len(pairs),
    )


def _blockers(using: str, topics: Sequence[KnownTopic], overdue: Mapping[str, timedelta]) -> list[Hold]:
    late = sorted((one.topic for one in topics if overdue[one.topic]), key=lambda topic: -overdue[topic])
    return [hold for topic in late[:BLOCKERS_MAX] for hold in holds(using, topic) if hold.overdue > ZERO]
