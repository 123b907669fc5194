"""Counts for topics and groups. Each statement reads an index range up to a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..connection.dialect import IN_TOPIC
from ..connection.session import fetch_each


@dataclass(frozen=True)
class Ends:
    """The first and the last message of a topic: their offsets, and when they were published (epoch milliseconds)."""

    first: int
    first_at: int
    last: int
    last_at: int


def ends(using: str, topics: Sequence[str]) -> dict[str, Ends]:
    """Return the ends of each topic that holds messages."""
    end = f"(SELECT `offset`, published_at {IN_TOPIC} ORDER BY `offset` {{}} LIMIT 1)"
    query = (
        "SELECT %s, first.`offset`, first.published_at, last.`offset`, last.published_at"
        f" FROM {end.format('ASC')} first JOIN {end.format('DESC')} last"
    )
    found = fetch_each(using, query, [[topic, topic] for topic in topics])
    return {topic: Ends(*map(int, row)) for topic, rows in zip(topics, found, strict=True) for row in rows}


def rows(using: str, topics: Sequence[str], limit: int) -> dict[str, int]:
    """Count the rows of each topic, up to ``limit``."""
    query = f"SELECT %s, COUNT(*) FROM (SELECT 1 {IN_TOPIC} LIMIT {limit:d}) x"
    found = fetch_each(using, query, [[topic] for topic in topics])
    return {topic: int(count) for topic, ((count,),) in zip(topics, found, strict=True)}


def lengths(using: str, topic: str, ranges: Sequence[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """Count up to ``limit`` rows of a topic in each range (end excluded). Return (count, last offset) of each."""
    query = (
        f"SELECT %s, COUNT(*), COALESCE(MAX(`offset`), 0) FROM (SELECT `offset` {IN_TOPIC} AND `offset` >= %s"
        f" AND `offset` < %s ORDER BY `offset` LIMIT {limit:d}) x"
    )
    found = fetch_each(using, query, [[topic, *one] for one in ranges])
    return [(int(count), int(last)) for ((count, last),) in found]


def targets(using: str, topics: Sequence[str], limit: int) -> dict[str, dict[str, int]]:
    """Count the first ``limit`` rows of each topic by target group ('': for all groups)."""
    query = (
        f"SELECT %s, consumer_group, COUNT(*) FROM (SELECT consumer_group {IN_TOPIC}"
        f" ORDER BY `offset` LIMIT {limit:d}) x GROUP BY consumer_group"
    )
    found = fetch_each(using, query, [[topic] for topic in topics])
    return {topic: {group: int(n) for group, n in rows} for topic, rows in zip(topics, found, strict=True)}


def recent_dead_letters(
    using: str, topics: Sequence[str], since: int, newest: int
) -> dict[tuple[str, str], int]:
    """Count recent dead letters by (dead-letter topic, group) among the last ``newest`` rows of each topic.

    A dead letter is recent if it was published at ``since`` (epoch milliseconds) or later.
    """
    query = (
        f"SELECT %s, failed_group, COUNT(*) FROM (SELECT failed_group, published_at {IN_TOPIC}"
        f" ORDER BY `offset` DESC LIMIT {newest:d}) x WHERE published_at >= %s GROUP BY failed_group"
    )
    found = zip(topics, fetch_each(using, query, [[topic, since] for topic in topics]), strict=True)
    return {(topic, str(group or "")): int(count) for topic, rows in found for group, count in rows}


def dead_letters(using: str, pairs: Sequence[tuple[str, str]], limit: int) -> dict[tuple[str, str], int]:
    """Count the dead letters for each (dead-letter topic, group), up to ``limit``."""
    query = (
        "SELECT %s, COUNT(*) FROM (SELECT 1 FROM queue_messages FORCE INDEX (queue_messages_due)"
        f" WHERE topic = %s AND failed_group = %s LIMIT {limit:d}) x"
    )
    return {
        pair: int(count) for pair, ((count,),) in zip(pairs, fetch_each(using, query, pairs), strict=True)
    }
