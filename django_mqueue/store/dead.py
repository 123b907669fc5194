"""Dead letters: copies of given-up messages in ``<topic>_dlq``, one for each message and group."""

from __future__ import annotations

from django.db.backends.utils import CursorWrapper

from .aside import without_retry
from .dialect import NOW_MS
from .gates import locking_topic


def copy(
    cursor: CursorWrapper, offset: int, group: str, dead_topic: str, failures: int, error: str
) -> str | None:
    """Copy a message of the log into the dead-letter topic: its metadata, or None if the log no longer holds it.

    The copy's id is made of the original offset and the group, so that no two letters collide and a second copy
    of the same one is none. It goes through the gate like every row of the log.
    """
    cursor.execute(
        "SELECT topic, partition_key, payload, metadata, COALESCE(original_id, id) FROM queue_messages"
        " WHERE `offset` = %s",
        [offset],
    )
    row = cursor.fetchone()
    if row is None:
        return None
    topic, partition, payload, metadata, original_id = row
    metadata = without_retry(metadata)
    gate, gate_params = locking_topic(dead_topic)
    cursor.execute(
        "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
        " created_at, published_at, failed_at, failure_count, last_error, original_topic, failed_group, original_id)"
        f" VALUES ({gate}, %s, %s, '', %s, %s, {NOW_MS}, {NOW_MS}, {NOW_MS}, {NOW_MS}, %s, %s, %s, %s, %s)"
        " ON DUPLICATE KEY UPDATE available_at = available_at",
        [
            *gate_params, partition, f"{offset}:{group}", payload, metadata, failures, error, topic, group, original_id,
        ],
    )  # fmt: skip
    return str(metadata)
