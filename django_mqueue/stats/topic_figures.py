"""Statistics of topics, for all groups: the messages in each topic, and the age of the oldest unsettled one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from .. import conf
from ..policy.durations import moment
from ..policy.names import scheduled_topic
from ..store.connection import session
from ..store.queries import bounded_counts, group_rows, group_summaries
from ..store.queries.group_rows import Range
from .results import TopicFigures, capped, row_cap


def read_topic_figures(
    using: str, topics: Sequence[str], count_limit: int | None = None
) -> dict[str, TopicFigures]:
    """Return the figures of the topics, by name."""
    if not topics:
        return {}
    cap = count_limit or row_cap(len(topics))
    with session.raises_not_migrated(using):
        now = moment(group_rows.now_ms(using))
        ends = bounded_counts.ends(using, topics)
        kept = bounded_counts.rows(using, sorted(topics), cap + 1)
        others = [*map(scheduled_topic, topics), *map(conf.dead_letter_topic, topics)]
        counts = bounded_counts.rows(using, others, cap + 1)
    found = {}
    for topic in topics:
        scheduled, dead = scheduled_topic(topic), conf.dead_letter_topic(topic)
        end = ends.get(topic)
        found[topic] = TopicFigures(
            topic, now, capped(kept[topic], cap), capped(counts[scheduled], cap), capped(counts[dead], cap),
            *((end.first, moment(end.first_at), end.last, moment(end.last_at)) if end else ()),
        )  # fmt: skip
    return found


def settled_lag(using: str, topics: Sequence[str]) -> dict[str, timedelta]:
    """Return the age of the oldest message above the settled offset; zero if there is none.

    It grows while a transaction that publishes stays open, and while no worker of the topic runs.
    """
    if not topics:
        return {}
    with session.raises_not_migrated(using):
        now, settled = group_rows.now_ms(using), group_summaries.settled(using, topics)
        ranges = [Range(topic, low=settled.get(topic, 0) + 1) for topic in topics]
        rows = group_rows.rows(using, ranges, 1)
    ages = (max(now - first.published_at, 0) if (first := next(iter(some), None)) else 0 for some in rows)
    return {topic: timedelta(milliseconds=age) for topic, age in zip(topics, ages, strict=True)}
