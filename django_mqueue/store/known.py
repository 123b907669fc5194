"""Which topics there are, and which groups are registered for them: loose index scans."""

from __future__ import annotations

from collections.abc import Sequence

from . import session
from .dialect import marks


def in_log(using: str, after: str, limit: int) -> list[str]:
    """Names of the next topics that the log holds anything of: derived ones among them."""
    rows = session.fetch(
        using,
        "SELECT DISTINCT topic FROM queue_messages FORCE INDEX (queue_messages_tail)"
        f" WHERE topic > %s ORDER BY topic LIMIT {limit:d}",
        [after],
    )
    return [str(name) for (name,) in rows]


def in_offsets(using: str, after: str, limit: int) -> list[str]:
    """The same of those that have positions, a registration or a row of their own."""
    rows = session.fetch(
        using,
        "SELECT DISTINCT topic FROM queue_offsets FORCE INDEX (queue_offsets_groups)"
        f" WHERE topic > %s ORDER BY topic LIMIT {limit:d}",
        [after],
    )
    return [str(name) for (name,) in rows]


def registered(using: str, topics: Sequence[str]) -> list[tuple[str, str]]:
    """(topic, group) of all registrations for the topics."""
    rows = session.fetch(
        using,
        "SELECT topic, consumer_group FROM queue_offsets FORCE INDEX (queue_offsets_groups)"
        f" WHERE topic IN ({marks(topics)}) AND partition_key = '' AND consumer_group > ''",
        list(topics),
    )
    return [(str(topic), str(group)) for topic, group in rows]
