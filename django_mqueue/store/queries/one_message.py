"""The history of one message in all tables. Each statement reads a bounded number of rows by index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...policy.batching import PER_STATEMENT
from ..connection import session
from ..connection.dialect import NOW_MS, names_table
from ..connection.session import fetch_each
from .message_pages import STATE, STATE_COLUMNS, LogEntry, entries

GROUP_COLUMNS = ("group", "start", "paused", "done_to", *STATE_COLUMNS[:-2])


def origin(using: str, offset: int) -> tuple[str, int] | None:
    """Return (topic, creation time) of the row at an offset, or None."""
    rows = session.fetch(
        using,
        "SELECT topic, created_at FROM queue_messages FORCE INDEX (PRIMARY) WHERE `offset` = %s",
        [offset],
    )
    return (rows[0][0], int(rows[0][1])) if rows else None


def group_states(using: str, topic: str, partition: str, offset: int, limit: int) -> list[dict[str, Any]]:
    """Return the first ``limit`` groups of a topic, by name, with the delivery state of a message.

    Each is a mapping by ``GROUP_COLUMNS``.
    """
    rows = session.fetch(
        using,
        f"SELECT r.consumer_group, r.offset_acked, r.paused, COALESCE(o.offset_acked, 0), {STATE}"
        " FROM (SELECT consumer_group, offset_acked, paused FROM queue_offsets FORCE INDEX (queue_offsets_groups)"
        f" WHERE topic = %s AND partition_key = '' AND consumer_group > '' ORDER BY consumer_group LIMIT {limit:d}) r"
        " LEFT JOIN queue_offsets o FORCE INDEX (queue_offsets_partition) ON o.consumer_group = r.consumer_group"
        " AND o.topic = %s AND o.partition_key = %s"
        " LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = r.consumer_group"
        " AND s.topic = %s AND s.partition_key = %s AND s.message_offset = %s ORDER BY r.consumer_group",
        [topic, topic, partition, topic, partition, offset],
    )
    return [dict(zip(GROUP_COLUMNS, row, strict=True)) for row in rows]


def dead_letters(
    using: str, dead_topic: str, partition: str, offset: int, limit: int
) -> list[tuple[int, str]]:
    """Return (offset, group) of a message's dead letters. Their ids are ``<offset of the message>:<group>``."""
    rows = session.fetch(
        using,
        "SELECT `offset`, id FROM queue_messages FORCE INDEX (queue_messages_dedupe)"
        f" WHERE topic = %s AND partition_key = %s AND id > %s AND id < %s ORDER BY id LIMIT {limit:d}",
        [dead_topic, partition, f"{offset}:", f"{offset};"],
    )
    return [(int(letter), id.partition(":")[2]) for letter, id in rows]


def parked_retries(using: str, scheduled: str, partition: str, offset: int, limit: int) -> list[int]:
    """Return the offsets of a message's parked retries, among the newest ``limit`` scheduled rows of its partition."""
    rows = session.fetch(
        using,
        "SELECT m.`offset` FROM (SELECT `offset` FROM queue_messages FORCE INDEX (queue_messages_partition)"
        f" WHERE topic = %s AND partition_key = %s ORDER BY `offset` DESC LIMIT {limit:d}) x"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = x.`offset`"
        " WHERE JSON_EXTRACT(m.metadata, '$.retry.offset') = %s",
        [scheduled, partition, offset],
    )
    return [int(one) for (one,) in rows]


def log_entry(using: str, topic: str, offset: int) -> list[LogEntry]:
    """Return the row at an offset if it belongs to the topic; otherwise an empty list."""
    return entries(using, "PRIMARY", "`offset` = %s AND topic = %s", [offset, topic])


PLACE_COLUMNS = (
    "group", "acked", "owner", "holder", "leased_at", "renewed_at", "handed", "alone", "now",
)  # fmt: skip


def places(
    using: str, topic: str, partition: str, offset: int, groups: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return each group's position and lease in a message's partition, and details of its delivery, by group.

    Each is a mapping by ``PLACE_COLUMNS``. Values of a missing row are 0, None or ''.
    """
    rows = session.fetch(
        using,
        "SELECT g.partition_key, COALESCE(o.offset_acked, 0), COALESCE(l.leased_by, ''), COALESCE(l.holder, ''),"
        f" l.leased_at, l.lease_renewed_at, COALESCE(s.handed, 0), COALESCE(s.alone, 0), {NOW_MS}"
        f" FROM {names_table('g')}"
        " LEFT JOIN queue_offsets o FORCE INDEX (queue_offsets_partition)"
        " ON o.consumer_group = g.partition_key AND o.topic = %s AND o.partition_key = %s"
        " LEFT JOIN queue_partition_leases l FORCE INDEX (queue_leases_partition)"
        " ON l.consumer_group = g.partition_key AND l.topic = %s AND l.partition_key = %s"
        " LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = g.partition_key"
        " AND s.topic = %s AND s.partition_key = %s AND s.message_offset = %s",
        [json.dumps(list(groups)), *[topic, partition] * 3, offset],
    )
    return {row[0]: dict(zip(PLACE_COLUMNS, row, strict=True)) for row in rows}


class MessagesAhead(NamedTuple):
    """The open messages of a partition before a message, among the first rows above the group's position.

    ``opened``: their number. ``is_partial``: as many rows as the limit were read, so there may be more. ``first``:
    the offset of the first one, whose delivery state follows: ``in_flight`` is None if it was never delivered.
    """

    opened: int
    is_partial: bool
    first: int
    in_flight: bool | None = None
    invisible_until: int = 0
    delivered_to: str = ""
    delivered_at: int = 0


def ahead(
    using: str, topic: str, partition: str, offset: int, positions: Sequence[tuple[str, int]], limit: int
) -> dict[str, MessagesAhead]:
    """Return the open messages before a message, for each (group, offset up to which all is done).

    Groups without such a message are missing from the result. ``limit``: the maximum number of rows that are read for
    each group. If none of so many is open, the result is ``MessagesAhead(0, True, 0)``: open ones may follow them.
    """
    count = (
        "SELECT %s, COUNT(*), SUM(m.consumer_group IN ('', %s) AND COALESCE(s.acked, 0) = 0),"
        " MIN(IF(m.consumer_group IN ('', %s) AND COALESCE(s.acked, 0) = 0, m.`offset`, NULL)) FROM"
        " (SELECT `offset`, consumer_group FROM queue_messages FORCE INDEX (queue_messages_partition)"
        " WHERE topic = %s AND partition_key = %s AND `offset` > %s AND `offset` < %s"
        f" ORDER BY `offset` LIMIT {limit:d}) m"
        " LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = %s AND s.topic = %s"
        " AND s.partition_key = %s AND s.message_offset = m.`offset`"
    )
    params = [
        (group, group, topic, partition, acked, offset, group, topic, partition) for group, acked in positions
    ]
    counted = fetch_each(using, count, params, PER_STATEMENT)
    found = {
        group: MessagesAhead(int(opened), int(read) == limit, int(first or 0))
        for (group, _), ((read, opened, first),) in zip(positions, counted, strict=True)
        if first is not None or int(read) == limit
    }
    state = (
        "SELECT %s, in_flight, invisible_until, delivered_to, delivered_at FROM queue_delivery_state"
        " FORCE INDEX (PRIMARY) WHERE consumer_group = %s AND topic = %s AND partition_key = %s AND message_offset = %s"
    )
    wanted = [(group, topic, partition, one.first) for group, one in found.items()]
    states = fetch_each(using, state, wanted, PER_STATEMENT)
    for group, rows in zip(list(found), states, strict=True):
        for in_flight, until, to, at in rows:
            found[group] = MessagesAhead(*found[group][:3], bool(in_flight), int(until), to, int(at))
    return found


def last_seen(using: str, topic: str, groups: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return (name, time of the last heartbeat) of each group's subscriber that was seen last."""
    query = (
        "SELECT %s, subscriber_name, heartbeat_at FROM queue_subscriber_heartbeats"
        " FORCE INDEX (queue_heartbeats_subscriber) WHERE consumer_group = %s AND topic = %s"
        " ORDER BY heartbeat_at DESC LIMIT 1"
    )
    found = fetch_each(using, query, [(group, topic) for group in groups], PER_STATEMENT)
    return {
        group: (str(rows[0][0]), int(rows[0][1])) for group, rows in zip(groups, found, strict=True) if rows
    }
