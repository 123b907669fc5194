"""Read messages for browsing, in chunks. No statement reads much more than it returns, however long the tables are.

One statement finds the rows, from an index alone. Another one reads the columns of these few rows by primary key.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from ..connection import session
from ..connection.dialect import STATE_OF_MESSAGE, flat, numbers_table, placeholders, union

LogEntry = tuple[int, str, str]
"""Offset, partition and target group of a row of the log."""


def of_partition(topic: str, partition: str | None) -> tuple[str, str, list[str]]:
    """Return index, condition and parameters that select the rows of a topic, or of one of its partitions."""
    if partition is None:
        return "queue_messages_tail", "topic = %s", [topic]
    return "queue_messages_partition", "topic = %s AND partition_key = %s", [topic, partition]


def entries(using: str, index: str, where: str, params: Sequence[Any]) -> list[LogEntry]:
    """Return the rows of the log that ``where`` selects by an index."""
    sql = f"SELECT `offset`, partition_key, consumer_group FROM queue_messages FORCE INDEX ({index}) WHERE {where}"
    return [(int(offset), name, target) for offset, name, target in session.fetch(using, sql, params)]


def log_page(
    using: str,
    topic: str,
    partition: str | None,
    bounds: tuple[int, int],
    limit: int,
    *,
    newest_first: bool,
) -> list[LogEntry]:
    """Return the next rows of a topic, or of one of its partitions, strictly between two offsets."""
    index, where, params = of_partition(topic, partition)
    where += f" AND `offset` > %s AND `offset` < %s ORDER BY `offset`{' DESC' if newest_first else ''} LIMIT {limit:d}"
    return entries(using, index, where, [*params, *bounds])


def rows_above(using: str, topic: str, above: Sequence[tuple[str, int]], limit: int) -> list[LogEntry]:
    """Return the first ``limit`` rows of each partition above its offset."""
    branch = (
        "SELECT `offset`, partition_key, consumer_group FROM queue_messages FORCE INDEX (queue_messages_partition)"
        f" WHERE topic = %s AND partition_key = %s AND `offset` > %s ORDER BY `offset` LIMIT {limit:d}"
    )
    rows = session.fetch(using, union(branch, len(above)), flat([topic, *one] for one in above))
    return [(int(offset), name, target) for offset, name, target in rows]


def leased(using: str, group: str, topic: str, after: str, limit: int) -> list[str]:
    """Return the next ``limit`` partitions with a lease row. Each partition with open deliveries has one."""
    rows = session.fetch(
        using,
        "SELECT partition_key FROM queue_partition_leases FORCE INDEX (queue_leases_partition)"
        " WHERE consumer_group = %s AND topic = %s AND partition_key > %s"
        f" ORDER BY partition_key LIMIT {limit:d}",
        [group, topic, after],
    )
    return [str(name) for (name,) in rows]


def with_open_deliveries(
    using: str, group: str, topic: str, first: str, last: str, in_flight: bool
) -> list[str]:
    """Return the leased partitions from ``first`` to ``last`` that have deliveries in flight.

    Without ``in_flight``: the partitions with messages that wait for a retry.
    """
    rows = session.fetch(
        using,
        "SELECT l.partition_key FROM queue_partition_leases l FORCE INDEX (queue_leases_partition)"
        " WHERE l.consumer_group = %s AND l.topic = %s AND l.partition_key >= %s AND l.partition_key <= %s AND"
        " (SELECT s.message_offset FROM queue_delivery_state s FORCE INDEX (queue_delivery_state_due)"
        " WHERE s.consumer_group = %s AND s.topic = %s AND s.partition_key = l.partition_key AND s.acked = 0"
        f" AND s.in_flight = {int(in_flight)} LIMIT 1) > 0 ORDER BY l.partition_key",
        [group, topic, first, last, group, topic],
    )
    return [str(name) for (name,) in rows]


def open_deliveries(
    using: str, group: str, topic: str, above: Sequence[tuple[str, int, int]], in_flight: bool, limit: int
) -> list[tuple[str, int, int]]:
    """Return (partition, due time, offset) of each partition's next deliveries in flight.

    Without ``in_flight``: of its next messages that wait for a retry. ``above``: for each partition the due time and
    offset to start after. ``limit``: the maximum for each partition.
    """
    branch = (
        "SELECT partition_key, invisible_until, message_offset FROM queue_delivery_state s"
        " FORCE INDEX (queue_delivery_state_due) WHERE consumer_group = %s AND topic = %s AND partition_key = %s"
        f" AND acked = 0 AND in_flight = {int(in_flight)} AND invisible_until >= %s"
        f" AND (invisible_until > %s OR message_offset > %s) ORDER BY invisible_until, message_offset LIMIT {limit:d}"
    )
    params = flat([group, topic, name, due, due, offset] for name, due, offset in above)
    rows = session.fetch(using, union(branch, len(above)), params)
    return [(name, int(due), int(offset)) for name, due, offset in rows]


def by_id(using: str, topic: str, partitions: Sequence[str], id: str) -> list[LogEntry]:
    """Return the rows with this id in the partitions, for any target group."""
    where = f"topic = %s AND partition_key IN ({placeholders(partitions)}) AND id = %s"
    return sorted(entries(using, "queue_messages_dedupe", where, [topic, *partitions, id]))


def by_original_id(
    using: str, topic: str, groups: Collection[str], id: str, limit: int | None = None
) -> list[LogEntry]:
    """Return the dead letters of ``groups`` with this original id. Without groups, return the messages that have it.

    Messages that were redriven or retried after a long delay have an original id. ``limit``: return so many of them,
    whichever the index has first; None: all.
    """
    of = f"failed_group IN ({placeholders(list(groups))})" if groups else "failed_group IS NULL"
    where = f"topic = %s AND {of} AND original_id = %s" + ("" if limit is None else f" LIMIT {limit:d}")
    return sorted(entries(using, "queue_messages_due", where, [topic, *groups, id]))


MESSAGE_COLUMNS = (
    "offset", "partition", "id", "original_id", "target", "metadata", "available_at", "published_at",
    "failed_at", "message_failures", "last_error", "failed_group", "original_topic",
)  # fmt: skip
STATE_COLUMNS = (
    "acked", "in_flight", "invisible_until", "retry_count", "failure_count", "handed", "delivered_to", "delivered_at",
    "acked_at", "errors", "dead_letter", "was_redriven",
)  # fmt: skip

_MESSAGE = (
    "m.`offset`, m.partition_key, m.id, m.original_id, m.consumer_group, m.metadata, m.available_at, m.published_at,"
    " m.failed_at, m.failure_count, m.last_error, m.failed_group, m.original_topic"
)
STATE = (
    "s.acked, s.in_flight, s.invisible_until, s.retry_count, s.failure_count, s.handed, s.delivered_to,"
    " s.delivered_at, s.acked_at, s.errors"
)
_AT_OFFSETS = (
    f" FROM {numbers_table('wanted', 'o')}"
    " STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = wanted.o"
)


WAS_REDRIVEN = (
    "EXISTS (SELECT 1 FROM queue_messages c FORCE INDEX (queue_messages_due) WHERE c.topic = m.topic"
    " AND c.failed_group IS NULL AND c.original_id = COALESCE(m.original_id, m.id) AND c.consumer_group = %s"
    " AND c.partition_key = m.partition_key AND c.`offset` > m.`offset`)"
)
"""True if the log holds a later copy of message ``m`` that was sent back to a group. The group is the parameter."""


def rows(using: str, offsets: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return all columns except the payloads: for each offset a mapping by ``MESSAGE_COLUMNS``."""
    found = session.fetch(using, f"SELECT {_MESSAGE}{_AT_OFFSETS}", [json.dumps(offsets)])
    return {int(row[0]): dict(zip(MESSAGE_COLUMNS, row, strict=True)) for row in found}


def rows_of_group(
    using: str, group: str, dead_topic: str, offsets: Sequence[int]
) -> dict[int, dict[str, Any]]:
    """Return the columns of ``rows`` and the group's delivery state (``STATE_COLUMNS``).

    ``dead_letter``: the offset of its dead letter, whose id consists of the original offset and the group.
    ``was_redriven``: see ``WAS_REDRIVEN``.
    """
    found = session.fetch(
        using,
        f"SELECT {_MESSAGE}, {STATE}, d.`offset`, s.acked = 1 AND d.`offset` IS NULL AND s.errors IS NOT NULL"
        f" AND {WAS_REDRIVEN}{_AT_OFFSETS} LEFT JOIN {STATE_OF_MESSAGE}"
        " LEFT JOIN queue_messages d FORCE INDEX (queue_messages_dedupe) ON s.acked = 1 AND d.topic = %s"
        " AND d.partition_key = m.partition_key AND d.id = CONCAT(m.`offset`, ':', %s) AND d.consumer_group = ''",
        [group, json.dumps(offsets), group, dead_topic, group],
    )
    columns = MESSAGE_COLUMNS + STATE_COLUMNS
    return {int(row[0]): dict(zip(columns, row, strict=True)) for row in found}


def sizes(using: str, offsets: Sequence[int]) -> dict[int, int]:
    """Return the size of each payload in bytes. The server reads long payloads for this."""
    found = session.fetch(using, f"SELECT m.`offset`, LENGTH(m.payload){_AT_OFFSETS}", [json.dumps(offsets)])
    return {int(offset): int(size) for offset, size in found}


def payloads(using: str, offsets: Sequence[int], most: int | None = None) -> dict[int, tuple[bytes, int]]:
    """Return (payload, full size in bytes) for each offset. ``most`` limits the bytes of each payload."""
    column = "m.payload" if most is None else f"LEFT(m.payload, {most:d})"
    found = session.fetch(
        using, f"SELECT m.`offset`, {column}, LENGTH(m.payload){_AT_OFFSETS}", [json.dumps(offsets)]
    )
    return {int(offset): (bytes(payload), int(size)) for offset, payload, size in found}


def newest_of_all(using: str, below: int, limit: int) -> dict[int, str]:
    """Return the topics of the newest rows below an offset, by offset, in descending order."""
    rows = session.fetch(
        using,
        "SELECT `offset`, topic FROM queue_messages FORCE INDEX (PRIMARY) WHERE `offset` < %s"
        f" ORDER BY `offset` DESC LIMIT {limit:d}",
        [below],
    )
    return {int(offset): topic for offset, topic in rows}


def topics_at(using: str, offsets: Sequence[int]) -> list[str]:
    """Return the topics of the rows at these offsets."""
    found = session.fetch(using, f"SELECT DISTINCT m.topic{_AT_OFFSETS}", [json.dumps(offsets)])
    return sorted(str(topic) for (topic,) in found)


def errors_of_groups(using: str, groups: Sequence[str], offsets: Sequence[int]) -> list[tuple[str, int, str]]:
    """Return (group, offset, errors as JSON) of the delivery states of these messages that have errors."""
    branch = (
        f"SELECT s.consumer_group, s.message_offset, s.errors{_AT_OFFSETS}"
        f" STRAIGHT_JOIN {STATE_OF_MESSAGE} AND s.errors IS NOT NULL"
    )
    params = flat([json.dumps(offsets), group] for group in groups)
    rows = session.fetch(using, union(branch, len(groups)), params)
    return [(str(group), int(offset), str(errors)) for group, offset, errors in rows]
