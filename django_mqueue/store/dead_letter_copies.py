"""Dead letters: copies in ``<topic>_dlq`` of messages that failed, one for each message and group."""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from .connection.dialect import NOW_MS
from .gates import locking_topic
from .scheduling.parked_retries import without, without_retry


@dataclass(frozen=True)
class Copied:
    """The original id and the metadata of a message that is now a dead letter."""

    original_id: str
    metadata: str


def copy(
    cursor: CursorWrapper, offset: int, group: str, dead_topic: str, failures: int, error: str
) -> Copied | None:
    """Copy a message of the log into the dead-letter topic. Return None if the log no longer holds it.

    The copy's id consists of the original offset and the group, so that ids do not collide. A second copy of the same
    message is not stored. The copy passes the gate like every row of the log. It includes the errors of earlier
    attempts, because the original and its delivery state are deleted later.

    ``failures``: the number of failed attempts. ``error``: the text of the last error.
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
"""The key in a dead letter's metadata for the number of attempts and the errors that its delivery state had."""


def with_failures(metadata: str, attempts: int | None, errors: str | None) -> str:
    content = json.loads(metadata)
    if not isinstance(content, dict):
        return metadata  # It is a dead letter because it cannot be read.
    content[FAILURES] = {"attempts": int(attempts or 0), "errors": json.loads(errors) if errors else []}
    return json.dumps(content, ensure_ascii=False)


def without_failures(metadata: str) -> str:
    """Return the metadata that a dead letter had before it became one."""
    return without(FAILURES, metadata)
