"""Reply boxes: rows of ``<topic>_replies`` in which requesters wait for their replies.

A box is inserted with its request, filled once, and deleted by its requester. If the requester dies, the box is
deleted after its deadline, which is ``available_at``. ``failure_count`` is NULL while the box is open, 0 for a reply,
and 1 if there can be no reply; ``last_error`` then says why. No group reads these rows, so they pass no gate.

Each box is found by its primary key, and its request has a higher offset. So at REPEATABLE READ, a search for a deleted
box does not lock the end of the table, where rows are inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from ..policy.encoding import Encoded
from ..policy.names import replies_topic
from ..policy.outcomes import PARKED_AT
from ..policy.requests import PARTITION, Box
from .connection import session
from .connection.dialect import NOW_MS, values_table
from .connection.session import Row
from .offsets import READS_LOG

EMPTY = '{"kind": "", "headers": {}, "encoding": "json"}'

_BOX = (
    "FROM queue_messages FORCE INDEX (PRIMARY) WHERE `offset` = %s AND id = %s AND partition_key = %s"
    " AND original_topic = %s AND original_id = %s"
)
"""A reply reads and fills only the box of its own request, even if its header names another box."""
_CONTENT = f"SELECT failure_count, payload, metadata, last_error, available_at - {NOW_MS}"


@dataclass(frozen=True)
class Content:
    """The content of a box, and the milliseconds to its deadline. ``failures`` is None while it is open."""

    failures: int | None
    payload: bytes
    metadata: str
    error: str
    left_ms: int


def open_box(cursor: CursorWrapper, topic: str, request_id: str, id: str, timeout_ms: int) -> Box:
    """Insert an empty box for the reply to this request. Its deadline is in ``timeout_ms`` milliseconds."""
    cursor.execute(
        "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
        " created_at, published_at, original_topic, original_id)"
        f" VALUES (%s, %s, %s, '', 'null', %s, {NOW_MS} + %s, {NOW_MS}, {NOW_MS}, %s, %s)",
        [replies_topic(topic), PARTITION, id, EMPTY, timeout_ms, topic, request_id],
    )
    return Box(int(cursor.lastrowid), id, topic, request_id)


def lock_open(cursor: CursorWrapper, box: Box) -> bool:
    """Lock an open box to fill it. Return False if it is filled, deleted, late or locked."""
    cursor.execute(
        f"SELECT `offset` {_BOX} AND failure_count IS NULL AND available_at > {NOW_MS} FOR UPDATE SKIP LOCKED",
        _key(box),
    )
    return cursor.fetchone() is not None


def fill(cursor: CursorWrapper, box: Box, content: Encoded, error: str | None = None) -> None:
    """Store a reply in a locked box. ``error``: why there will be no reply."""
    cursor.execute(
        "UPDATE queue_messages FORCE INDEX (PRIMARY) SET payload = %s, metadata = %s, failure_count = %s,"
        f" last_error = %s, published_at = {NOW_MS} WHERE `offset` = %s",
        [content.body, content.metadata, int(error is not None), error, box.offset],
    )


def read(using: str, box: Box) -> Content | None:
    """Return the content of a box, without locks; None if the box was deleted."""
    rows = session.fetch(using, f"{_CONTENT} {_BOX}", _key(box))
    return _content(rows[0]) if rows else None


def take(cursor: CursorWrapper, box: Box) -> Content | None:
    """Delete a box, and return its content. Return None if it is gone or locked."""
    cursor.execute(f"{_CONTENT} {_BOX} FOR UPDATE SKIP LOCKED", _key(box))
    row = cursor.fetchone()
    if row is None:
        return None
    cursor.execute("DELETE m FROM queue_messages m FORCE INDEX (PRIMARY) WHERE m.`offset` = %s", [box.offset])
    return _content(row)


def page(using: str, topic: str, above: int, linger_ms: int, limit: int) -> list[tuple[int, bool]]:
    """Return (offset, expired) of the next boxes. A box expires ``linger_ms`` after its deadline."""
    rows = session.fetch(
        using,
        f"SELECT `offset`, available_at <= {NOW_MS} - %s FROM queue_messages FORCE INDEX (queue_messages_tail)"
        f" WHERE topic = %s AND `offset` > %s ORDER BY `offset` LIMIT {limit:d}",
        [linger_ms, topic, above],
    )
    return [(int(offset), bool(expired)) for offset, expired in rows]


def lock_expired(cursor: CursorWrapper, offsets: Sequence[int], linger_ms: int) -> list[int]:
    """Lock expired boxes that are not locked. Return their offsets."""
    cursor.execute(
        f"SELECT m.`offset` FROM {values_table(('box',), len(offsets))} left_over"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = left_over.box"
        f" WHERE m.partition_key = %s AND m.available_at <= {NOW_MS} - %s FOR UPDATE SKIP LOCKED",
        [*offsets, PARTITION, linger_ms],
    )
    return [int(offset) for (offset,) in cursor.fetchall()]


def is_last_replier(cursor: CursorWrapper, offset: int, group: str) -> bool:
    """Return whether this group alone can still reply: the others have finished the message, or it was for this group.

    A redriven message is only for this group, but other groups may still reply to its original. So may groups whose
    retry is parked. Groups that read the log themselves do not reply.
    """
    cursor.execute(
        "SELECT (m.consumer_group = %s AND m.original_id IS NULL) OR NOT EXISTS"
        " (SELECT 1 FROM queue_offsets o FORCE INDEX (queue_offsets_groups)"
        " LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = o.consumer_group"
        " AND s.topic = m.topic AND s.partition_key = m.partition_key AND s.message_offset = m.`offset`"
        f" AND s.acked = 1 AND s.invisible_until <> {PARKED_AT}"
        " WHERE o.topic = m.topic AND o.partition_key = '' AND o.consumer_group NOT IN ('', %s)"
        f" AND o.scan_offset <> {READS_LOG} AND o.offset_acked < m.`offset` AND s.message_offset IS NULL)"
        " FROM queue_messages m FORCE INDEX (PRIMARY) WHERE m.`offset` = %s",
        [group, group, offset],
    )
    row = cursor.fetchone()
    return bool(row and row[0])


def _key(box: Box) -> list[Any]:
    return [box.offset, box.id, PARTITION, box.topic, box.request_id]


def _content(row: Row) -> Content:
    failures, payload, metadata, error, left = row
    return Content(
        None if failures is None else int(failures), bytes(payload), metadata, error or "", int(left)
    )
