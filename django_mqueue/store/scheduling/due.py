"""Promotion: move scheduled messages that are due from ``<topic>_scheduled`` into the log."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from ...policy.names import scheduled_topic
from ..connection.dialect import NOW_MS, TOPIC_ROW, placeholders
from ..log import INSERT_COLUMNS, insert_values
from ..offsets import INSERT_TOPIC_ROW
from .schedule import WAITING


@dataclass(frozen=True)
class DueMessage:
    """A due scheduled message.

    ``generation``, ``original_offset``: of a parked retry, its group's generation and its offset in the log; else 0.
    """

    offset: int
    partition: str
    id: str
    group: str
    size: int
    generation: int
    original_offset: int


def lock_promotion(cursor: CursorWrapper, topic: str) -> bool:
    """Lock the promotion of a topic, so that messages enter the log by due time. Return False if it is locked."""
    row = scheduled_topic(topic)
    lock = f"SELECT 1 FROM queue_offsets {TOPIC_ROW}"
    cursor.execute(f"{lock} FOR UPDATE SKIP LOCKED", [row])
    if cursor.fetchone():
        return True
    cursor.execute(lock, [row])
    if cursor.fetchone():
        return False
    cursor.execute(INSERT_TOPIC_ROW, [row])
    return True


def lock_due(cursor: CursorWrapper, topic: str, without: Collection[int], limit: int) -> list[DueMessage]:
    """Lock and return up to ``limit`` due messages by due time. Skip locked ones, and offsets in ``without``."""
    others = f" AND `offset` NOT IN ({placeholders(sorted(without))})" if without else ""
    cursor.execute(
        "SELECT `offset`, partition_key, id, consumer_group, LENGTH(payload) + LENGTH(metadata),"
        " JSON_EXTRACT(metadata, '$.retry.life'), JSON_EXTRACT(metadata, '$.retry.offset')"  # See parked_retries.
        f" FROM queue_messages FORCE INDEX (queue_messages_due) WHERE topic = %s AND {WAITING}"
        f" AND available_at <= {NOW_MS}{others} ORDER BY available_at, `offset` LIMIT {limit:d}"
        " FOR UPDATE SKIP LOCKED",
        [scheduled_topic(topic), *sorted(without)],
    )
    return [
        DueMessage(int(o), p, i, g, int(size), int(generation or 0), int(original_offset or 0))
        for o, p, i, g, size, generation, original_offset in cursor.fetchall()
    ]


def existing_offsets(cursor: CursorWrapper, offsets: Collection[int]) -> set[int]:
    """Return the offsets that the log still holds."""
    if not offsets:
        return set()
    cursor.execute(
        "SELECT `offset` FROM queue_messages FORCE INDEX (PRIMARY)"
        f" WHERE `offset` IN ({placeholders(sorted(offsets))})",
        sorted(offsets),
    )
    return {int(offset) for (offset,) in cursor.fetchall()}


def in_log(cursor: CursorWrapper, topic: str, offsets: Sequence[int]) -> dict[int, int]:
    """Return {scheduled offset: offset in the log} for ids in the log; at READ UNCOMMITTED, also uncommitted ids."""
    cursor.execute(
        "SELECT s.`offset`, m.`offset` FROM queue_messages s FORCE INDEX (PRIMARY)"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (queue_messages_dedupe) ON m.topic = %s"
        " AND m.partition_key = s.partition_key AND m.id = s.id AND m.consumer_group = s.consumer_group"
        f" WHERE s.`offset` IN ({placeholders(offsets)})",
        [topic, *offsets],
    )
    return {int(scheduled): int(stored) for scheduled, stored in cursor.fetchall()}


def append(cursor: CursorWrapper, topic: str, offsets: Sequence[int]) -> None:
    """Copy scheduled rows into the log by due time. INSERT ... SELECT would lock MariaDB's AUTO_INCREMENT counter."""
    cursor.execute(
        "SELECT partition_key, id, consumer_group, payload, metadata, available_at, created_at,"
        " JSON_UNQUOTE(JSON_EXTRACT(metadata, '$.retry.id')) FROM queue_messages FORCE INDEX (PRIMARY)"
        f" WHERE `offset` IN ({placeholders(offsets)}) ORDER BY available_at, `offset`",
        list(offsets),
    )
    values = f"%s, %s, %s, %s, %s, %s, %s, {NOW_MS}, %s"
    insert_values(
        cursor, topic, [(values, row) for row in cursor.fetchall()], f"{INSERT_COLUMNS}, original_id"
    )
