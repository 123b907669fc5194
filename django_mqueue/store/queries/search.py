"""Find rows for operators. No statement reads much more than it returns, however long the tables are.

The indexes are forced, because with a LIMIT both servers sometimes read a whole topic or the whole log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...policy.batching import batches
from ..connection import session
from ..connection.session import BRANCHES, Row, fetch_each
from .skip_scan import Names

AT_ONCE = 5_000
"""Maximum pairs of names in one statement."""

TopicPartition = tuple[str, str]
"""A topic, and the name of one of its partitions."""
Hit = tuple[int, str]
"""The offset and the topic of a row."""

_COLUMN = "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_PAIRS = f"JSON_TABLE(%s, '$[*]' COLUMNS (first {_COLUMN} PATH '$[0]', second {_COLUMN} PATH '$[1]')) w"
GROUP_INDEXES = {
    "queue_delivery_state": "PRIMARY",
    "queue_partition_leases": "queue_leases_partition",
    "queue_offsets": "queue_offsets_partition",
    "queue_subscriber_heartbeats": "queue_heartbeats_subscriber",
}
"""For each table the index that begins with the group."""

_STATE_KEY = ("consumer_group", "topic", "partition_key", "message_offset")


def groups(using: str, table: str) -> list[str]:
    """Return the groups that have rows in the table, by name."""
    return list(Names(table, GROUP_INDEXES[table], "consumer_group", "consumer_group").all(using))


def states_of_topic(using: str, topic: str, limit: int) -> list[Row]:
    """Return the first ``limit`` primary keys of a topic's delivery state, in their order."""
    query = (
        f"SELECT %s, {', '.join(_STATE_KEY)} FROM queue_delivery_state FORCE INDEX (PRIMARY)"
        f" WHERE consumer_group = %s AND topic = %s ORDER BY partition_key, message_offset LIMIT {limit:d}"
    )
    found: list[Row] = []
    for some in batches(groups(using, "queue_delivery_state"), BRANCHES):
        for rows in fetch_each(using, query, [(group, topic) for group in some]):
            found += sorted(tuple(row) for row in rows)
        if len(found) >= limit:
            break
    return found[:limit]


def states(using: str, leading: Mapping[str, str], from_offset: int | None, limit: int) -> list[Row]:
    """Return primary keys of delivery state, in their order, for values of the key's ``leading`` columns.

    ``from_offset``: the lowest offset. It requires values for all columns before the offset.
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


def by_id(using: str, partitions: Sequence[TopicPartition], id: str) -> list[Hit]:
    """Return the rows with this id in these partitions, for any target group."""
    return _each(using, "queue_messages_dedupe", "m.partition_key = w.second AND m.id = %s", partitions, id)


def by_longer_id(
    using: str, partitions: Sequence[TopicPartition], first: str, end: str, limit: int
) -> list[Hit]:
    """Return up to ``limit`` rows of each partition whose id is above ``first`` and below ``end``."""
    query = (
        "SELECT %s, `offset`, topic FROM queue_messages FORCE INDEX (queue_messages_dedupe)"
        f" WHERE topic = %s AND partition_key = %s AND id > %s AND id < %s ORDER BY id LIMIT {limit:d}"
    )
    found = fetch_each(using, query, [(*each, first, end) for each in partitions])
    return [(int(offset), str(topic)) for rows in found for offset, topic in rows]


def by_original_id(using: str, topics: Sequence[str], id: str) -> list[Hit]:
    """Return the messages of these topics with this original id: redriven, redelivered, or from a parked retry."""
    pairs = [(topic, "") for topic in topics]
    return _each(using, "queue_messages_due", "m.failed_group IS NULL AND m.original_id = %s", pairs, id)


def dead_letters(using: str, groups: Sequence[tuple[str, str]], id: str) -> list[Hit]:
    """Return the dead letters with this original id, of each (dead-letter topic, group)."""
    return _each(using, "queue_messages_due", "m.failed_group = w.second AND m.original_id = %s", groups, id)


def newest_of_key(using: str, topics: Sequence[str], key: str, limit: int) -> list[Hit]:
    """Return the newest ``limit`` rows with this key of each topic."""
    query = (
        "SELECT %s, `offset`, topic FROM queue_messages FORCE INDEX (queue_messages_partition)"
        f" WHERE topic = %s AND partition_key = %s ORDER BY `offset` DESC LIMIT {limit:d}"
    )
    found = fetch_each(using, query, [(topic, key) for topic in topics])
    return [(int(offset), str(topic)) for rows in found for offset, topic in rows]


def _each(using: str, index: str, condition: str, pairs: Sequence[tuple[str, str]], id: str) -> list[Hit]:
    sql = (
        f"SELECT m.`offset`, m.topic FROM {_PAIRS} STRAIGHT_JOIN queue_messages m FORCE INDEX ({index})"
        f" ON m.topic = w.first AND {condition}"
    )
    found: list[Hit] = []
    for some in batches(pairs, AT_ONCE):
        rows = session.fetch(using, sql, [json.dumps(list(some)), id])
        found += [(int(offset), str(topic)) for offset, topic in rows]
    return found
