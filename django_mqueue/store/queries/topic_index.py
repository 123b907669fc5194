"""The names of topics, and the groups that are registered for them."""

from __future__ import annotations

from collections.abc import Sequence

from ..connection import session
from ..connection.dialect import placeholders
from .skip_scan import Names


def in_log(using: str) -> list[str]:
    """Return the names of all topics that have rows in the log, including dead-letter and other derived topics."""
    return list(Names("queue_messages", "queue_messages_tail", "topic", "topic").all(using))


def in_offsets(using: str) -> list[str]:
    """Return the names of all topics that have a row in ``queue_offsets`` (position, registration or topic)."""
    return list(Names("queue_offsets", "queue_offsets_groups", "topic", "topic").all(using))


def registered(using: str, topics: Sequence[str]) -> list[tuple[str, str]]:
    """Return (topic, group) of all registrations for the topics."""
    rows = session.fetch(
        using,
        "SELECT topic, consumer_group FROM queue_offsets FORCE INDEX (queue_offsets_groups)"
        f" WHERE topic IN ({placeholders(topics)}) AND partition_key = '' AND consumer_group > ''",
        list(topics),
    )
    return [(str(topic), str(group)) for topic, group in rows]
