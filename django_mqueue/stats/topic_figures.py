"""Statistics of topics: the messages that each topic holds, for all groups."""

from __future__ import annotations

from collections.abc import Sequence

from .. import conf
from ..policy.durations import moment
from ..policy.names import scheduled_topic
from ..store.connection import session
from ..store.queries import bounded_counts, group_rows
from .results import TopicFigures, capped, row_cap


def topic_figures(using: str, topics: Sequence[str], exact: int | None = None) -> dict[str, TopicFigures]:
    """Return the figures of the topics, by name."""
    if not topics:
        return {}
    cap = exact or row_cap(len(topics))
    with session.migration_errors(using):
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
