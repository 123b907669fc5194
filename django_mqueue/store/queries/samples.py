"""Samples of the log, at offsets spread over it, and a group's delivery state for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ..connection import session
from ..connection.dialect import NOW_MS, flat, numbers_table, union


def now_ms(using: str) -> int:
    return int(session.fetch(using, f"SELECT {NOW_MS}")[0][0])


@dataclass(frozen=True)
class Row:
    """A sampled row. ``place``: the number of its range. ``failed_group``: the group whose dead letter it is."""

    place: int
    offset: int
    partition: str
    target: str
    published_at: int
    failed_group: str | None


def at(using: str, topic: str, ranges: Sequence[tuple[int, int]], each: int) -> list[Row]:
    """Return the first ``each`` rows of a topic in each range of offsets, in offset order. A range excludes its end."""
    branch = (
        "SELECT %s, `offset`, partition_key, consumer_group, published_at, failed_group FROM queue_messages"
        " FORCE INDEX (queue_messages_tail) WHERE topic = %s AND `offset` >= %s AND `offset` < %s"
        f" ORDER BY `offset` LIMIT {each:d}"
    )
    params = flat([number, topic, low, high] for number, (low, high) in enumerate(ranges))
    rows = session.fetch(using, union(branch, len(ranges)), params)
    return sorted(
        (Row(int(n), int(offset), p, target, int(at), of) for n, offset, p, target, at, of in rows),
        key=lambda row: row.offset,
    )


def times(using: str, offsets: Sequence[int]) -> dict[int, int]:
    """Return the publication time of each message, by offset."""
    found = session.fetch(
        using,
        f"SELECT m.`offset`, m.published_at FROM {numbers_table('wanted', 'o')}"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = wanted.o",
        [json.dumps(offsets)],
    )
    return {int(offset): int(at) for offset, at in found}


def last(using: str, topic: str, before: int, count: int) -> int:
    """Return the lowest offset of a topic's last ``count`` rows before an offset; 0 if there is none."""
    rows = session.fetch(
        using,
        "SELECT MIN(`offset`) FROM (SELECT `offset` FROM queue_messages FORCE INDEX (queue_messages_tail)"
        f" WHERE topic = %s AND `offset` < %s ORDER BY `offset` DESC LIMIT {count:d}) x",
        [topic, before],
    )
    return int(rows[0][0] or 0)


@dataclass(frozen=True)
class State:
    """A group's delivery state for a message. Times are epoch milliseconds."""

    acked: bool
    in_flight: bool
    handed: bool
    skipped: bool
    retries: int
    delivered_to: str
    delivered_at: int
    acked_at: int | None


def states(using: str, group: str, offsets: Sequence[int]) -> dict[int, State]:
    """Return the delivery state of the messages that were delivered to the group, by offset."""
    found = session.fetch(
        using,
        "SELECT m.`offset`, s.acked, s.in_flight, s.handed,"
        " s.handed = 0 AND s.failure_count = 0 AND s.delivered_to <> '', s.retry_count, s.delivered_to,"
        " s.delivered_at, s.acked_at"
        f" FROM {numbers_table('wanted', 'o')}"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = wanted.o"
        " STRAIGHT_JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = %s AND s.topic = m.topic"
        " AND s.partition_key = m.partition_key AND s.message_offset = m.`offset`",
        [json.dumps(offsets), group],
    )
    return {
        int(offset): State(
            bool(acked),
            bool(in_flight),
            bool(handed),
            bool(skipped),
            int(retries),
            name,
            int(at),
            None if done is None else int(done),
        )
        for offset, acked, in_flight, handed, skipped, retries, name, at, done in found
    }


def everywhere(using: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (offset, publication time) of the first row of the log, of any topic, in each range. A range excludes its
    end.
    """
    branch = (
        "SELECT `offset`, published_at FROM queue_messages FORCE INDEX (PRIMARY)"
        " WHERE `offset` >= %s AND `offset` < %s ORDER BY `offset` LIMIT 1"
    )
    rows = session.fetch(using, union(branch, len(ranges)), flat(ranges))
    return sorted((int(offset), int(at)) for offset, at in rows)


def around(using: str, topics: Sequence[str], offset: int) -> dict[str, list[tuple[int, int]]]:
    """Return (offset, publication time) of each topic's last row before an offset, and first row from it on."""
    one = (
        "SELECT topic, `offset`, published_at FROM queue_messages FORCE INDEX (queue_messages_tail)"
        " WHERE topic = %s AND `offset` {} %s ORDER BY `offset`{} LIMIT 1"
    )
    rows = session.fetch(
        using,
        union(f"{one.format('<', ' DESC')}) UNION ALL ({one.format('>=', '')}", len(topics)),
        flat([topic, offset, topic, offset] for topic in topics),
    )
    found: dict[str, list[tuple[int, int]]] = {}
    for topic, row, at in rows:
        found.setdefault(topic, []).append((int(row), int(at)))
    return {topic: sorted(of) for topic, of in found.items()}
