"""Boxes: rows of ``<topic>_replies`` in which requesters wait for their answers.

A box is opened with its request, filled once, and deleted by its requester; what a dead requester has left is swept.
``available_at`` is its deadline. ``failure_count`` is NULL while it is open, 0 for a reply, 1 where there can be none;
``last_error`` says why then. No group reads these rows, so they pass no gate.

Each is found by its primary key. Its request's offset lies above it, so that whoever looks for a box that is gone, at
REPEATABLE READ, locks no gap that an INSERT goes into.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from ..policy.encoding import Encoded
from ..policy.names import replies_topic
from ..policy.requests import PARTITION, Box
from . import session
from .dialect import NOW_MS, values_table
from .session import Row

EMPTY = '{"kind": "", "headers": {}, "encoding": "json"}'

_BOX = (
    "FROM queue_messages FORCE INDEX (PRIMARY) WHERE `offset` = %s AND id = %s AND partition_key = %s"
    " AND original_topic = %s AND original_id = %s"
)
"""Whatever a header names, a reply reads and fills only the box of its own request."""
_CONTENT = f"SELECT failure_count, payload, metadata, last_error, available_at - {NOW_MS}"


@dataclass(frozen=True)
class Content:
    """What a box holds; ``failures`` is None while it is open. ``left_ms``: until its deadline."""

    failures: int | None
    payload: bytes
    metadata: str
    error: str
    left_ms: int


def open_box(cursor: CursorWrapper, topic: str, message: str, id: str, timeout_ms: int) -> Box:
    """Insert an empty box for the reply to this message of the topic, which has ``timeout_ms`` to come."""
    cursor.execute(
        "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
        " created_at, published_at, original_topic, original_id)"
        f" VALUES (%s, %s, %s, '', 'null', %s, {NOW_MS} + %s, {NOW_MS}, {NOW_MS}, %s, %s)",
        [replies_topic(topic), PARTITION, id, EMPTY, timeout_ms, topic, message],
    )
    return Box(int(cursor.lastrowid), id, topic, message)


def lock_open(cursor: CursorWrapper, box: Box) -> bool:
    """Lock a box for filling it: False if it is filled, gone, past its deadline, or locked by another."""
    cursor.execute(
        f"SELECT `offset` {_BOX} AND failure_count IS NULL AND available_at > {NOW_MS} FOR UPDATE SKIP LOCKED",
        _named(box),
    )
    return cursor.fetchone() is not None


def fill(cursor: CursorWrapper, box: Box, content: Encoded, error: str | None = None) -> None:
    """Put an answer into a box that is locked; ``error``: why there will be none."""
    cursor.execute(
        "UPDATE queue_messages FORCE INDEX (PRIMARY) SET payload = %s, metadata = %s, failure_count = %s,"
        f" last_error = %s, published_at = {NOW_MS} WHERE `offset` = %s",
        [content.body, content.metadata, int(error is not None), error, box.offset],
    )


def look(using: str, box: Box) -> Content | None:
    """What is in a box, without locks; None if it is gone."""
    rows = session.fetch(using, f"{_CONTENT} {_BOX}", _named(box))
    return _content(rows[0]) if rows else None


def take(cursor: CursorWrapper, box: Box) -> Content | None:
    """Delete a box: what was in it. None, and nothing is deleted, if it is gone or somebody is just filling it."""
    cursor.execute(f"{_CONTENT} {_BOX} FOR UPDATE SKIP LOCKED", _named(box))
    row = cursor.fetchone()
    if row is None:
        return None
    cursor.execute("DELETE m FROM queue_messages m FORCE INDEX (PRIMARY) WHERE m.`offset` = %s", [box.offset])
    return _content(row)


def page(using: str, topic: str, above: int, linger_ms: int, limit: int) -> list[tuple[int, bool]]:
    """(offset, whether its deadline passed that long ago) of the next ``limit`` boxes of a topic."""
    rows = session.fetch(
        using,
        f"SELECT `offset`, available_at <= {NOW_MS} - %s FROM queue_messages FORCE INDEX (queue_messages_tail)"
        f" WHERE topic = %s AND `offset` > %s ORDER BY `offset` LIMIT {limit:d}",
        [linger_ms, topic, above],
    )
    return [(int(offset), bool(expired)) for offset, expired in rows]


def lock_expired(cursor: CursorWrapper, offsets: Sequence[int], linger_ms: int) -> list[int]:
    """Lock those of the boxes that nobody holds and whose deadline passed that long ago: which they are."""
    cursor.execute(
        f"SELECT m.`offset` FROM {values_table(('box',), len(offsets))} left_over"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = left_over.box"
        f" WHERE m.partition_key = %s AND m.available_at <= {NOW_MS} - %s FOR UPDATE SKIP LOCKED",
        [*offsets, PARTITION, linger_ms],
    )
    return [int(offset) for (offset,) in cursor.fetchall()]


def is_last_hope(cursor: CursorWrapper, offset: int, group: str) -> bool:
    """Whether a message was published for this group alone, or every other registered group is done with it.

    One that was sent back to this group alone says nothing of what the others do with the first one.
    """
    cursor.execute(
        "SELECT (m.consumer_group = %s AND m.original_id IS NULL) OR NOT EXISTS"
        " (SELECT 1 FROM queue_offsets o FORCE INDEX (queue_offsets_groups)"
        " LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = o.consumer_group"
        " AND s.topic = m.topic AND s.partition_key = m.partition_key AND s.message_offset = m.`offset` AND s.acked = 1"
        " WHERE o.topic = m.topic AND o.partition_key = '' AND o.consumer_group NOT IN ('', %s)"
        " AND o.offset_acked < m.`offset` AND s.message_offset IS NULL)"
        " FROM queue_messages m FORCE INDEX (PRIMARY) WHERE m.`offset` = %s",
        [group, group, offset],
    )
    row = cursor.fetchone()
    return bool(row and row[0])


def _named(box: Box) -> list[Any]:
    return [box.offset, box.id, PARTITION, box.topic, box.message]


def _content(row: Row) -> Content:
    failures, payload, metadata, error, left = row
    return Content(_number(failures), bytes(payload), metadata, error or "", int(left))


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
