"""Parked retries: a retry with a long delay is scheduled for its group. The message in the log is acknowledged.

The scheduled row keeps the counts and errors of earlier attempts. While it waits, the group's watermark can pass the
message, and later messages can be deleted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from ..policy.names import ID_MAX, scheduled_topic
from .connection import session
from .connection.dialect import IN_TOPIC, NOW_MS
from .log import INSERT_COLUMNS

PARKED = "~"
"""Separates the message's own id and the new part in the id of a parked retry."""


@dataclass(frozen=True)
class ParkedRetry:
    """A message that is to be parked for its group.

    ``offset``: its offset in the log. ``generation``: the group's registration generation. ``id``: a new id. The
    log still holds the message's own id. So the id of the scheduled row is the own id, ``PARKED`` and the new id. If
    this is too long, it is only the new id.
    """

    group: str
    topic: str
    partition: str
    offset: int
    generation: int
    id: str


def park(cursor: CursorWrapper, retry: ParkedRetry, delay_ms: int, *, counted: bool) -> None:
    """Schedule a message again in ``delay_ms``, unless the log no longer has it.

    ``counted``: count this delivery as an attempt.
    """
    cursor.execute(
        "SELECT m.metadata, COALESCE(m.original_id, m.id), m.published_at, s.retry_count, s.handed, s.failure_count,"
        " s.errors FROM queue_delivery_state s FORCE INDEX (PRIMARY)"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = s.message_offset"
        " WHERE s.consumer_group = %s AND s.topic = %s AND s.partition_key = %s AND s.message_offset = %s",
        [retry.group, retry.topic, retry.partition, retry.offset],
    )
    row = cursor.fetchone()
    if row is None:
        return
    text, id, published_at, retries, handed, failures, errors = row
    metadata: dict[str, Any] = json.loads(text)
    earlier = metadata.get("retry", {})
    row_id = f"{id}{PARKED}{retry.id}"
    metadata["retry"] = {
        "id": id,
        "offset": retry.offset,
        "published_at": earlier.get("published_at", int(published_at)),
        "count": int(retries) + (int(handed) if counted else 0),
        "failures": int(failures),
        "errors": json.loads(errors) if errors else [],
        "life": retry.generation,  # The stored name of the registration generation.
    }
    cursor.execute(
        f"INSERT INTO queue_messages ({INSERT_COLUMNS})"
        f" SELECT %s, partition_key, %s, %s, payload, %s, {NOW_MS} + %s, created_at, {NOW_MS}"
        " FROM queue_messages FORCE INDEX (PRIMARY) WHERE `offset` = %s",
        [
            scheduled_topic(retry.topic), row_id if len(row_id) <= ID_MAX else retry.id, retry.group,
            json.dumps(metadata, ensure_ascii=False), delay_ms, retry.offset,
        ],
    )  # fmt: skip


def waiting(using: str, topic: str, above: int, limit: int) -> list[tuple[int, str, int | None]]:
    """Return (offset, group, a parked retry's original offset) of scheduled messages for single groups."""
    rows = session.fetch(
        using,
        f"SELECT `offset`, consumer_group, JSON_EXTRACT(metadata, '$.retry.offset') {IN_TOPIC} AND `offset` > %s"
        f" AND consumer_group <> '' ORDER BY `offset` LIMIT {limit:d}",
        [scheduled_topic(topic), above],
    )
    return [(int(offset), group, None if before is None else int(before)) for offset, group, before in rows]


def without(part: str, metadata: str) -> str:
    """Return a message's metadata without one part: the record of its parked retries, or of its failures."""
    content = json.loads(metadata)
    if not isinstance(content, dict) or part not in content:
        return metadata
    del content[part]
    return json.dumps(content, ensure_ascii=False)
