"""The age of the oldest message that is not settled, by topic."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ..store.connection import session
from ..store.queries import group_positions, group_rows
from ..store.queries.group_rows import Range


def settled_lag(using: str, topics: Sequence[str]) -> dict[str, timedelta]:
    """Return the age of the oldest message above the settled offset; zero if there is none.

    It grows while a transaction that publishes stays open, and while no worker of the topic runs.
    """
    if not topics:
        return {}
    with session.migration_errors(using):
        now, settled = group_rows.now_ms(using), group_positions.settled(using, topics)
        ranges = [Range(topic, low=settled.get(topic, 0) + 1) for topic in topics]
        rows = group_rows.rows(using, ranges, 1)
    ages = (max(now - first.published_at, 0) if (first := next(iter(some), None)) else 0 for some in rows)
    return {topic: timedelta(milliseconds=age) for topic, age in zip(topics, ages, strict=True)}
