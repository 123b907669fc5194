"""Finding rows by hand, as the admin does. However long the tables, no statement reads much more than it returns.

The indexes are forced: with a LIMIT both servers otherwise now and then read a whole topic, or the
whole log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import session
from .session import Row


def newest(using: str, topic: str, partition: str | None, up_to: int | None, limit: int) -> list[int]:
    """Offsets of a topic's newest messages, or one partition's, at or below ``up_to``; newest first."""
    index, where, params = "queue_messages_tail", "topic = %s", [topic]
    if partition is not None:
        index, where, params = (
            "queue_messages_partition",
            "topic = %s AND partition_key = %s",
            [topic, partition],
        )
    bounds: list[Any] = []
    if up_to is not None:
        where, bounds = where + " AND `offset` <= %s", [up_to]
    rows = session.fetch(
        using,
        f"SELECT `offset` FROM queue_messages FORCE INDEX ({index}) WHERE {where}"
        f" ORDER BY `offset` DESC LIMIT {limit:d}",
        [*params, *bounds],
    )
    return [int(offset) for (offset,) in rows]


def by_id(using: str, topic: str, id: str, partitions: int) -> list[int]:
    """Offsets of the messages with this id in the first ``partitions`` partitions of a topic.

    An id is unique in its partition, so the index of ids is asked once for each: a loose scan finds them.
    """
    rows = session.fetch(
        using,
        "SELECT m.`offset` FROM (SELECT topic, partition_key FROM queue_messages FORCE INDEX (queue_messages_partition)"
        f" WHERE topic = %s GROUP BY topic, partition_key LIMIT {partitions:d}) p"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (queue_messages_dedupe)"
        " ON m.topic = %s AND m.partition_key = p.partition_key AND m.id = %s",
        [topic, topic, id],
    )
    return [int(offset) for (offset,) in rows]


_STATE_KEY = ("consumer_group", "topic", "partition_key", "message_offset")


def states(using: str, leading: Mapping[str, str], from_offset: int | None, limit: int) -> list[Row]:
    """Primary keys of delivery state in their order, for the values of the ``leading`` columns of the key.

    ``from_offset`` needs all columns before the offset.
    """
    given = [column for column in _STATE_KEY if column in leading]
    rest = _STATE_KEY[len(given) :]
    where, params = [f"{column} = %s" for column in given], [leading[column] for column in given]
    bounds: list[Any] = []
    if from_offset is not None:
        where, bounds = [*where, "message_offset >= %s"], [from_offset]
    return session.fetch(
        using,
        f"SELECT {', '.join(_STATE_KEY)} FROM queue_delivery_state FORCE INDEX (PRIMARY)"
        f" WHERE {' AND '.join(where)} ORDER BY {', '.join(rest)} LIMIT {limit:d}",
        [*params, *bounds],
    )
