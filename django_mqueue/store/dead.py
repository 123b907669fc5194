"""Dead letters: copies of given-up messages in ``<topic>_dlq``, one for each message and group."""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from .aside import without, without_retry
from .dialect import NOW_MS
from .gates import locking_topic


@dataclass(frozen=True)
class Copied:
    """What the log says of a message that is a dead letter now."""

    original_id: str
    metadata: str


def copy(
    cursor: CursorWrapper, offset: int, group: str, dead_topic: str, failures: int, error: str
) -> Copied | None:
    """Copy a message of the log into the dead-letter topic. Return None if the log no longer holds it.

    The copy's id is made of the original offset and the group, so that no two letters collide and a second copy
    of the same one is none. It goes through the gate like every row of the log. Why earlier attempts failed goes with
    it: the original, and what is known of it, is deleted in time.
    """
    cursor.execute(
        "SELECT m.topic, m.partition_key, m.payload, m.metadata, COALESCE(m.original_id, m.id),"
        " s.retry_count + s.handed, s.errors FROM queue_messages m FORCE INDEX (PRIMARY)"
        " LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = %s AND s.topic = m.topic"
        " AND s.partition_key = m.partition_key AND s.message_offset = m.`offset` WHERE m.`offset` = %s",
        [group, offset],
    )
    row = cursor.fetchone()
    if row is None:
        return None
    topic, partition, payload, metadata, original_id, attempts, errors = row
    metadata = without_retry(metadata)
    gate, gate_params = locking_topic(dead_topic)
    cursor.execute(
        "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
        " created_at, published_at, failed_at, failure_count, last_error, original_topic, failed_group, original_id)"
        f" VALUES ({gate}, %s, %s, '', %s, %s, {NOW_MS}, {NOW_MS}, {NOW_MS}, {NOW_MS}, %s, %s, %s, %s, %s)"
        " ON DUPLICATE KEY UPDATE available_at = available_at",
        [
            *gate_params, partition, f"{offset}:{group}", payload, with_failures(metadata, attempts, errors), failures,
            error, topic, group, original_id,
        ],
    )  # fmt: skip
    return Copied(original_id, str(metadata))


FAILURES = "failed"
"""Of a letter's metadata: how many attempts there were, and the errors that its state had kept."""


def with_failures(metadata: str, attempts: int | None, errors: str | None) -> str:
    content = json.loads(metadata)
    if not isinstance(content, dict):
        return metadata  # It is dead because it cannot be read.
    content[FAILURES] = {"attempts": int(attempts or 0), "errors": json.loads(errors) if errors else []}
    return json.dumps(content, ensure_ascii=False)


def without_failures(metadata: str) -> str:
    """What a letter's metadata were before it was one."""
    return without(FAILURES, metadata)
