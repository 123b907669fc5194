"""Some rows of the log, and what a group did with them: read at places spread over it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from . import session
from .dialect import NOW_MS, flat, numbers_table, union


def now_ms(using: str) -> int:
    return int(session.fetch(using, f"SELECT {NOW_MS}")[0][0])


@dataclass(frozen=True)
class Row:
    """``place``: which of the asked ones it was found at."""

    place: int
    offset: int
    partition: str
    target: str


def at(using: str, topic: str, ranges: Sequence[tuple[int, int]], each: int) -> list[Row]:
    """The first ``each`` rows of each range of offsets (the second one is not in it), by the index alone."""
    branch = (
        "SELECT %s, `offset`, partition_key, consumer_group FROM queue_messages FORCE INDEX (queue_messages_tail)"
        f" WHERE topic = %s AND `offset` >= %s AND `offset` < %s ORDER BY `offset` LIMIT {each:d}"
    )
    params = flat([number, topic, low, high] for number, (low, high) in enumerate(ranges))
    rows = session.fetch(using, union(branch, len(ranges)), params)
    return sorted(
        (Row(int(place), int(offset), name, target) for place, offset, name, target in rows),
        key=lambda row: row.offset,
    )


@dataclass(frozen=True)
class Times:
    """A message, and what a group did with it (``acked`` is None where nothing yet). Epoch milliseconds."""

    published_at: int
    acked: bool | None = None
    in_flight: bool = False
    delivered_at: int | None = None
    acked_at: int | None = None


def times(using: str, offsets: Sequence[int]) -> dict[int, Times]:
    found = session.fetch(
        using,
        f"SELECT m.`offset`, m.published_at FROM {numbers_table('wanted', 'o')}"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = wanted.o",
        [json.dumps(offsets)],
    )
    return {int(offset): Times(int(at)) for offset, at in found}


def times_of_group(using: str, group: str, offsets: Sequence[int]) -> dict[int, Times]:
    found = session.fetch(
        using,
        "SELECT m.`offset`, m.published_at, s.acked, s.in_flight, s.delivered_at, s.acked_at"
        f" FROM {numbers_table('wanted', 'o')}"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = wanted.o"
        " LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = %s AND s.topic = m.topic"
        " AND s.partition_key = m.partition_key AND s.message_offset = m.`offset`",
        [json.dumps(offsets), group],
    )
    return {
        int(offset): Times(
            int(at),
            None if acked is None else bool(acked),
            bool(in_flight),
            None if delivered is None else int(delivered),
            None if done is None else int(done),
        )
        for offset, at, acked, in_flight, delivered, done in found
    }
