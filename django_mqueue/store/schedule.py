"""Scheduled messages: rows of ``<topic>_scheduled`` that wait until they are due, and their promotion into the log.

No worker delivers these rows, watermarks ignore them, and their offsets are no positions in the log. So they need no
gate. Promotion inserts them into the log through the gate.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from ..policy.durations import Due
from ..policy.names import scheduled_topic
from .connection import session
from .connection.dialect import NOW_MS, TOPIC_ROW, flat, placeholders
from .connection.second_connection import outside_snapshot
from .log import (
    COPY_COLUMNS,
    DUPLICATE_FLAG,
    INSERT,
    INSERT_COLUMNS,
    MessageKey,
    NewRow,
    existing,
    insert_values,
)
from .offsets import INSERT_TOPIC_ROW

WAITING = "failed_group IS NULL AND original_id IS NULL"
"""With this condition, the index orders a topic by due time. Both columns are NULL in scheduled rows."""

COLUMNS = (
    "offset", "partition", "id", "group", "payload", "metadata", "available_at", "created_at",
)  # fmt: skip


@dataclass(frozen=True)
class ScheduledRow:
    """A message that is about to be scheduled, and its due time."""

    row: NewRow
    due: Due

    @property
    def message_key(self) -> MessageKey:
        return self.row.message_key

    @property
    def sql(self) -> str:
        return f"(%s, %s, %s, {self.row.target}, %s, %s, {due_sql(self.due)}, {NOW_MS}, {NOW_MS})"

    def params(self, topic: str) -> list[Any]:
        """Return the parameters of ``sql``. ``topic``: the topic to which the message is promoted."""
        return [scheduled_topic(topic), *self.row.params(topic), self.due.ms]


def due_sql(due: Due) -> str:
    return f"{NOW_MS} + %s" if due.from_now else "%s"


def insert(cursor: CursorWrapper, topic: str, rows: Sequence[ScheduledRow]) -> int:
    """Store rows whose ids are not used yet, as ``log.insert`` does."""
    values = ", ".join(row.sql for row in rows)
    cursor.execute(
        INSERT.format(columns=INSERT_COLUMNS, rows=values), flat(row.params(topic) for row in rows)
    )
    return int(cursor.lastrowid)


def insert_once(cursor: CursorWrapper, topic: str, row: ScheduledRow) -> tuple[int, bool]:
    """Store a row unless its id is scheduled. Return (offset of the stored row, whether this call stored it)."""
    values = (
        f"{row.sql} ON DUPLICATE KEY UPDATE"
        f" failure_count = IF(LAST_INSERT_ID(`offset` + {DUPLICATE_FLAG}), failure_count, failure_count)"
    )
    cursor.execute(INSERT.format(columns=INSERT_COLUMNS, rows=values), row.params(topic))
    offset = int(cursor.lastrowid)
    return (offset, True) if offset < DUPLICATE_FLAG else (offset - DUPLICATE_FLAG, False)


def replace(cursor: CursorWrapper, topic: str, offset: int, row: ScheduledRow) -> bool:
    """Replace a scheduled message, found by its offset. An upsert would lock a gap in the index of ids."""
    cursor.execute(
        "UPDATE queue_messages m FORCE INDEX (PRIMARY)"
        f" SET m.payload = %s, m.metadata = %s, m.available_at = {due_sql(row.due)}"
        " WHERE m.`offset` = %s AND m.topic = %s",
        [row.row.content.body, row.row.content.metadata, row.due.ms, offset, scheduled_topic(topic)],
    )
    return bool(cursor.rowcount)


_BY_KEY = " WHERE m.topic = %s AND m.partition_key = %s AND m.id = %s AND m.consumer_group = %s"


def change(cursor: CursorWrapper, topic: str, message_key: MessageKey, due: Due | None) -> bool:
    """Give the message of ``message_key`` another due time; None: delete it. Return whether it was still scheduled."""
    found = _locate(cursor, topic, message_key)
    if found is None:
        return False
    index, where, params = found
    table = f"queue_messages m FORCE INDEX ({index})"
    if due is None:
        cursor.execute(f"DELETE m FROM {table}{where}", params)
    else:
        cursor.execute(f"UPDATE {table} SET m.available_at = {due_sql(due)}{where}", [due.ms, *params])
    return bool(cursor.rowcount)


def _locate(cursor: CursorWrapper, topic: str, message_key: MessageKey) -> tuple[str, str, list[Any]] | None:
    """Return the index, the WHERE and its values that find the message to lock; None if there is no such message.

    At REPEATABLE READ a caller's transaction would lock the gap of a missing id, and block publishers. So a second
    connection reads first. READ UNCOMMITTED also shows that connection the rows that the caller has not committed.
    """
    params = [scheduled_topic(topic), *message_key]
    using = cursor.db.alias
    with outside_snapshot(using) as fresh:
        if fresh == using:
            return "queue_messages_dedupe", _BY_KEY, params
        seen = session.run(
            fresh, lambda other: existing(other, params[0], [message_key]), level="READ UNCOMMITTED"
        )
    if message_key not in seen:
        return None
    return "PRIMARY", " WHERE m.`offset` = %s AND m.topic = %s", [seen[message_key], params[0]]


def page(
    using: str, topic: str, after: tuple[int, int], before: int | None, limit: int
) -> list[dict[str, Any]]:
    """Return the next ``limit`` rows after (due time, offset), in this order. ``before``: the due time to stop at."""
    until, bounds = ("", []) if before is None else (" AND available_at < %s", [before])
    where = (
        f"FORCE INDEX (queue_messages_due) WHERE topic = %s AND {WAITING}"
        f" AND available_at >= %s AND (available_at > %s OR `offset` > %s){until}"
        f" ORDER BY available_at, `offset` LIMIT {limit:d}"
    )
    return _read(using, where, [scheduled_topic(topic), after[0], after[0], after[1], *bounds])


def by_key(using: str, topic: str, message_key: MessageKey) -> list[dict[str, Any]]:
    """Return a list with the scheduled message that ``message_key`` identifies, or an empty list."""
    return _read(
        using, f"FORCE INDEX (queue_messages_dedupe){_BY_KEY}", [scheduled_topic(topic), *message_key]
    )


def _read(using: str, where: str, params: list[Any]) -> list[dict[str, Any]]:
    columns = "`offset`, partition_key, id, consumer_group, payload, metadata, available_at, created_at"
    rows = session.fetch(using, f"SELECT {columns} FROM queue_messages m {where}", params)
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


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
    insert_values(cursor, topic, [(values, row) for row in cursor.fetchall()], COPY_COLUMNS)
