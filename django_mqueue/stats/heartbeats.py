"""The heartbeats of one subscriber."""

from __future__ import annotations

from datetime import timedelta

from ..store.connection import session
from ..store.queries import group_positions


def last_heartbeats(using: str, name: str) -> dict[tuple[str, str], timedelta]:
    """Return the time since the last heartbeat of a subscriber, by (topic, group), without groups that it has left."""
    with session.migration_errors(using):
        rows = group_positions.last_heartbeats(using, name)
    return {(topic, group): timedelta(milliseconds=max(age, 0)) for topic, group, age in rows}
