"""Counts for topics and groups. Each statement reads an index range up to a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...policy.batching import batches
from ..connection import session
from ..connection.dialect import flat, union

BRANCHES = 50
"""The maximum number of topics or groups in one statement."""


@dataclass(frozen=True)
class Ends:
    """The first and the last message of a topic: their offsets, and when they were published (epoch milliseconds)."""

    first: int
    first_at: int
    last: int
    last_at: int


def ends(using: str, topics: Sequence[str]) -> dict[str, Ends]:
    """Return the ends of each topic that holds messages."""
    one = (
        "SELECT topic, `offset`, published_at FROM queue_messages FORCE INDEX (queue_messages_tail)"
        " WHERE topic = %s ORDER BY `offset`"
    )
    branch = f"{one} LIMIT 1) UNION ALL ({one} DESC LIMIT 1"
    found: dict[str, list[tuple[int, int]]] = {}
    for topic, offset, at in _fetch(using, branch, [[topic, topic] for topic in topics]):
        found.setdefault(topic, []).append((int(offset), int(at)))
    return {topic: Ends(*min(of), *max(of)) for topic, of in found.items()}


def longer_than(using: str, topics: Sequence[str], rows: int) -> set[str]:
    """Return the topics that hold more than ``rows`` rows."""
    branch = (
        "SELECT topic FROM queue_messages FORCE INDEX (queue_messages_tail) WHERE topic = %s"
        f" ORDER BY `offset` LIMIT 1 OFFSET {rows:d}"
    )
    return {str(topic) for (topic,) in _fetch(using, branch, [[topic] for topic in topics])}


def rows(using: str, topics: Sequence[str], limit: int) -> dict[str, int]:
    """Count the rows of each topic, up to ``limit``."""
    branch = (
        "SELECT %s, COUNT(*) FROM (SELECT 1 FROM queue_messages FORCE INDEX (queue_messages_tail) WHERE topic = %s"
        f" LIMIT {limit:d}) x"
    )
    found = _fetch(using, branch, [[number, topic] for number, topic in enumerate(topics)])
    return {topics[int(number)]: int(count) for number, count in found}


def lengths(using: str, topic: str, ranges: Sequence[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """Count up to ``limit`` rows of a topic in each range of offsets, without its end. Return (count, last offset)."""
    branch = (
        "SELECT %s, COUNT(*), COALESCE(MAX(`offset`), 0) FROM (SELECT `offset` FROM queue_messages"
        " FORCE INDEX (queue_messages_tail) WHERE topic = %s AND `offset` >= %s AND `offset` < %s"
        f" ORDER BY `offset` LIMIT {limit:d}) x"
    )
    rows = _fetch(using, branch, [[number, topic, *one] for number, one in enumerate(ranges)])
    return [(int(count), int(last)) for _, count, last in sorted(rows)]


def targets(using: str, topics: Sequence[str], limit: int) -> dict[str, dict[str, int]]:
    """Count the first ``limit`` rows of each topic by target group ('': for all groups)."""
    branch = (
        "SELECT topic, consumer_group, COUNT(*) FROM (SELECT topic, consumer_group FROM queue_messages"
        f" FORCE INDEX (queue_messages_tail) WHERE topic = %s ORDER BY `offset` LIMIT {limit:d}) x"
        " GROUP BY topic, consumer_group"
    )
    found: dict[str, dict[str, int]] = {}
    for topic, group, count in _fetch(using, branch, [[topic] for topic in topics]):
        found.setdefault(topic, {})[group] = int(count)
    return found


def letters_since(using: str, topics: Sequence[str], since: int, looked: int) -> dict[tuple[str, str], int]:
    """Count recent dead letters for each (dead-letter topic, group), among each topic's last ``looked`` letters.

    A letter is recent if it was published at ``since`` (epoch milliseconds) or later.
    """
    branch = (
        "SELECT topic, failed_group, COUNT(*) FROM (SELECT topic, failed_group, published_at FROM queue_messages"
        f" FORCE INDEX (queue_messages_tail) WHERE topic = %s ORDER BY `offset` DESC LIMIT {looked:d}) x"
        " WHERE published_at >= %s GROUP BY topic, failed_group"
    )
    rows = _fetch(using, branch, [[topic, since] for topic in topics])
    return {(str(topic), group or ""): int(count) for topic, group, count in rows}


def letters(using: str, pairs: Sequence[tuple[str, str]], limit: int) -> dict[tuple[str, str], int]:
    """Count the dead letters for each (dead-letter topic, group), up to ``limit``."""
    branch = (
        "SELECT %s, COUNT(*) FROM (SELECT 1 FROM queue_messages FORCE INDEX (queue_messages_due)"
        f" WHERE topic = %s AND failed_group = %s LIMIT {limit:d}) x"
    )
    rows = _fetch(using, branch, [[number, *pair] for number, pair in enumerate(pairs)])
    return {pairs[int(number)]: int(count) for number, count in rows}


def _fetch(using: str, branch: str, params: Sequence[Sequence[object]]) -> list[session.Row]:
    return [
        row
        for some in batches(params, BRANCHES)
        for row in session.fetch(using, union(branch, len(some)), flat(some))
    ]
