"""Dead letters: copies in ``<topic>_dlq`` of messages that failed. Store them, find them, send them back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.backends.utils import CursorWrapper

from ..policy.requests import Box, box_in
from . import garbage
from .connection import session
from .connection.dialect import NOW_MS, STATE_OF_MESSAGE, placeholders
from .gates import locking_topic
from .log import COPY_COLUMNS, insert_values
from .parked_retries import without

COLUMNS = (
    "offset", "partition", "id", "original_id", "payload", "metadata", "published_at", "failed_at",
    "failure_count", "last_error", "original_topic", "failed_group", "topic",
)  # fmt: skip


def copy(
    cursor: CursorWrapper, offset: int, group: str, dead_topic: str, failures: int, error: str
) -> Box | None:
    """Copy a message into the dead-letter topic, if the log still has it. Return the box of a request, or None.

    If the group has a dead letter of the message already, the new one replaces it.
    """
    cursor.execute(
        "SELECT m.topic, m.partition_key, m.payload, m.metadata, COALESCE(m.original_id, m.id),"
        " s.retry_count + s.handed, s.errors FROM queue_messages m FORCE INDEX (PRIMARY)"
        f" LEFT JOIN {STATE_OF_MESSAGE} WHERE m.`offset` = %s",
        [group, offset],
    )
    row = cursor.fetchone()
    if row is None:
        return None
    topic, partition, payload, metadata, original_id, attempts, errors = row
    metadata = without("retry", metadata)
    gate, gate_params = locking_topic(dead_topic)
    insert = (
        "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
        " created_at, published_at, failed_at, failure_count, last_error, original_topic, failed_group, original_id)"
        f" VALUES ({gate}, %s, %s, '', %s, %s, {NOW_MS}, {NOW_MS}, {NOW_MS}, {NOW_MS}, %s, %s, %s, %s, %s)"
        # For a duplicate, ``rowcount`` is 2, and ``lastrowid`` the offset of the existing row.
        " ON DUPLICATE KEY UPDATE available_at = available_at + 1, `offset` = LAST_INSERT_ID(`offset`)",
        [
            *gate_params, partition, f"{offset}:{group}", payload, with_failures(metadata, attempts, errors), failures,
            error, topic, group, original_id,
        ],
    )  # fmt: skip
    cursor.execute(*insert)
    if cursor.rowcount > 1:
        # The message failed again after a reset. A new row keeps the offsets in the order of failures.
        garbage.delete(
            cursor, dead_topic, sorted(garbage.starts(cursor, dead_topic)), [int(cursor.lastrowid)]
        )
        cursor.execute(*insert)
    return box_in(str(metadata), topic, original_id)


FAILURES = "failed"
"""The key in a dead letter's metadata for the number of attempts and the errors that its delivery state had."""


def with_failures(metadata: str, attempts: int | None, errors: str | None) -> str:
    content = json.loads(metadata)
    if not isinstance(content, dict):
        return metadata  # It is a dead letter because it cannot be read.
    content[FAILURES] = {"attempts": int(attempts or 0), "errors": json.loads(errors) if errors else []}
    return json.dumps(content, ensure_ascii=False)


PAIRS_MAX = 500
"""Maximum number of pairs of an id and a group for a search by id. With more, it reads in offset order."""


def sizes(
    using: str, topic: str, groups: Sequence[str], ids: Sequence[str], above: int, last: int, limit: int
) -> list[tuple[int, int]]:
    """Return (offset, bytes of payload and metadata) of the next dead letters up to ``last``, in offset order.

    ``groups``: the groups that failed. ``ids``: the original ids; empty: all.
    """
    with_ids = f" AND original_id IN ({placeholders(ids)})" if ids else ""
    index = "queue_messages_due" if ids and len(ids) * len(groups) <= PAIRS_MAX else "queue_messages_tail"
    rows = session.fetch(
        using,
        f"SELECT `offset`, LENGTH(payload) + LENGTH(metadata) FROM queue_messages FORCE INDEX ({index})"
        f" WHERE topic = %s AND failed_group IN ({placeholders(groups)}){with_ids}"
        f" AND `offset` > %s AND `offset` <= %s ORDER BY `offset` LIMIT {limit:d}",
        [topic, *groups, *ids, above, last],
    )
    return [(int(offset), int(size)) for offset, size in rows]


def groups(using: str, topic: str) -> set[str]:
    """Return the groups with dead letters in the topic. Each takes one statement: GROUP BY might read all."""
    found: set[str] = set()
    last = ""
    while True:
        ((group,),) = session.fetch(
            using,
            "SELECT MIN(failed_group) FROM queue_messages FORCE INDEX (queue_messages_due)"
            " WHERE topic = %s AND failed_group > %s",
            [topic, last],
        )
        if group is None:
            return found
        found.add(group)
        last = group


def read(cursor: CursorWrapper, offsets: Sequence[int]) -> list[dict[str, Any]]:
    """Return the dead letters in offset order, each a mapping by ``COLUMNS``."""
    cursor.execute(
        "SELECT `offset`, partition_key, id, COALESCE(original_id, id), payload, metadata, published_at, failed_at,"
        " failure_count, last_error, original_topic, failed_group, topic FROM queue_messages FORCE INDEX (PRIMARY)"
        f" WHERE `offset` IN ({placeholders(offsets)}) ORDER BY `offset`",
        list(offsets),
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in cursor.fetchall()]


class Redriven(NamedTuple):
    """A message to send back to the group that failed. ``original``: the id under which it was published."""

    partition: str
    id: str
    group: str
    payload: bytes
    metadata: str
    original: str


def append_redriven(cursor: CursorWrapper, topic: str, messages: Sequence[Redriven]) -> None:
    """Append messages to the log, each for its group only."""
    values = f"%s, %s, %s, %s, %s, {NOW_MS}, {NOW_MS}, {NOW_MS}, %s"
    insert_values(cursor, topic, [(values, one) for one in messages], COPY_COLUMNS)
