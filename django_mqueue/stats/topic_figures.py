"""Statistics of topics: the messages that each topic holds, for whatever group."""

from __future__ import annotations

from collections.abc import Sequence

from .. import conf
from ..policy.durations import moment
from ..policy.names import scheduled_topic
from ..store.connection import session
from ..store.queries import bounded_counts, group_rows
from .results import TopicFigures, capped

CAP, KEPT = 1_000, 100_000
"""The maximum number of scheduled messages, and of dead letters, that are counted; and of messages of all topics."""


def topic_figures(using: str, topics: Sequence[str], exact: int | None = None) -> dict[str, TopicFigures]:
    """Return the figures of the topics, by name."""
    if not topics:
        return {}
    cap = exact or max(CAP, min(10_000, KEPT // len(topics)))
    with session.migration_errors(using):
        now = moment(group_rows.now_ms(using))
        ends = bounded_counts.ends(using, topics)
        kept = bounded_counts.targets(using, topics, cap + 1)
        others = [
            name for topic in topics for name in (scheduled_topic(topic), conf.dead_letter_topic(topic))
        ]
        counts = kept | bounded_counts.targets(using, [one for one in others if one not in kept], CAP + 1)
    found = {}
    for topic in topics:
        scheduled, dead = scheduled_topic(topic), conf.dead_letter_topic(topic)
        end = ends.get(topic)
        found[topic] = TopicFigures(
            topic, now, capped(sum(kept.get(topic, {}).values()), cap),
            capped(sum(counts.get(scheduled, {}).values()), CAP), capped(sum(counts.get(dead, {}).values()), CAP),
            *((end.first, moment(end.first_at), end.last, moment(end.last_at)) if end else ()),
        )  # fmt: skip
    return found
