"""Scheduled messages: rows of ``<topic>_scheduled``, which wait there until they are due.

No worker reads them as messages, no watermark knows of them, and their offsets are no places in the log. So they need
no gate: who puts them into the log (``due``) goes through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from ..policy.due import Due
from ..policy.names import scheduled_topic
from . import session
from .beside import committed_now
from .dialect import NOW_MS, flat
from .log import DUPLICATE_FLAG, INSERT, NewRow, Place, existing

WAITING = "failed_group IS NULL AND original_id IS NULL"
"""With the topic, what makes the index of due times one: scheduled rows have neither."""

COLUMNS = (
    "offset", "partition", "id", "group", "payload", "metadata", "available_at", "created_at",
)  # fmt: skip


@dataclass(frozen=True)
class ScheduledRow:
    """One message that is to come later."""

    row: NewRow
    due: Due

    @property
    def place(self) -> Place:
        return self.row.place

    @property
    def sql(self) -> str:
        return f"(%s, %s, %s, {self.row.target}, %s, %s, {due_sql(self.due)}, {NOW_MS}, {NOW_MS})"

    def params(self, topic: str) -> list[Any]:
        """``topic`` is the one where it is due."""
        row = self.row
        target = [row.group, topic] if row.group else []
        return [
            scheduled_topic(topic), row.partition, row.id, *target, row.content.body, row.content.metadata, self.due.ms,
        ]  # fmt: skip


def due_sql(due: Due) -> str:
    return f"{NOW_MS} + %s" if due.from_now else "%s"


def insert(cursor: CursorWrapper, topic: str, rows: Sequence[ScheduledRow]) -> int:
    """Store rows whose ids must be free; the first one's offset, the others follow. Raises as ``log.insert`` does."""
    cursor.execute(
        INSERT + ", ".join(row.sql for row in rows),
        flat(row.params(topic) for row in rows),
    )
    return int(cursor.lastrowid)


def insert_once(cursor: CursorWrapper, topic: str, row: ScheduledRow) -> tuple[int, bool]:
    """Store a row unless its id is scheduled: the stored row's offset, and whether this call stored it.

    If that one falls due at this moment, who moves it into the log is waited for.
    """
    cursor.execute(
        f"{INSERT} {row.sql} ON DUPLICATE KEY UPDATE"
        f" failure_count = IF(LAST_INSERT_ID(`offset` + {DUPLICATE_FLAG}), failure_count, failure_count)",
        row.params(topic),
    )
    offset = int(cursor.lastrowid)
    return (offset, True) if offset < DUPLICATE_FLAG else (offset - DUPLICATE_FLAG, False)


def replace(cursor: CursorWrapper, topic: str, offset: int, row: ScheduledRow) -> bool:
    """Give a scheduled message this one's payload, kind, headers and time; whether it was still scheduled.

    By its offset: an upsert would lock the place before it in the index of ids too, where other publishers come along.
    """
    cursor.execute(
        "UPDATE queue_messages m FORCE INDEX (PRIMARY)"
        f" SET m.payload = %s, m.metadata = %s, m.available_at = {due_sql(row.due)}"
        " WHERE m.`offset` = %s AND m.topic = %s",
        [row.row.content.body, row.row.content.metadata, row.due.ms, offset, scheduled_topic(topic)],
    )
    return bool(cursor.rowcount)


_AT_PLACE = " WHERE m.topic = %s AND m.partition_key = %s AND m.id = %s AND m.consumer_group = %s"


def delete(cursor: CursorWrapper, topic: str, place: Place) -> bool:
    """Delete the message at that place; whether it was still scheduled."""
    found = _locate(cursor, topic, place)
    if found is None:
        return False
    index, where, params = found
    cursor.execute(f"DELETE m FROM queue_messages m FORCE INDEX ({index}){where}", params)
    return bool(cursor.rowcount)


def move(cursor: CursorWrapper, topic: str, place: Place, due: Due) -> bool:
    """Give the message at that place another time; whether it was still scheduled."""
    found = _locate(cursor, topic, place)
    if found is None:
        return False
    index, where, params = found
    cursor.execute(
        f"UPDATE queue_messages m FORCE INDEX ({index}) SET m.available_at = {due_sql(due)}{where}",
        [due.ms, *params],
    )
    return bool(cursor.rowcount)


def _locate(cursor: CursorWrapper, topic: str, place: Place) -> tuple[str, str, list[Any]] | None:
    """Return the index, the WHERE and its values by which a statement locks the message at that place.

    A caller's transaction at REPEATABLE READ would lock the gap where an id is missing, and hold up publishers of any
    topic. There a second connection looks first, and None says that no such row exists. It reads what is not
    committed too: what the caller's transaction scheduled itself, and what another is about to delete is gone.
    """
    params = [scheduled_topic(topic), *place]
    using = cursor.db.alias
    with committed_now(using) as now:
        if now == using:
            return "queue_messages_dedupe", _AT_PLACE, params
        seen = session.run(now, lambda beside: existing(beside, params[0], [place]), level="READ UNCOMMITTED")
    if place not in seen:
        return None
    return "PRIMARY", " WHERE m.`offset` = %s AND m.topic = %s", [seen[place], params[0]]


def page(
    using: str, topic: str, after: tuple[int, int], before: int | None, limit: int
) -> list[dict[str, Any]]:
    """The next ``limit`` rows behind (due time, offset), by due time, those due before ``before``."""
    until, bounds = ("", []) if before is None else (" AND available_at < %s", [before])
    rows = session.fetch(
        using,
        "SELECT `offset`, partition_key, id, consumer_group, payload, metadata, available_at, created_at"
        f" FROM queue_messages FORCE INDEX (queue_messages_due) WHERE topic = %s AND {WAITING}"
        f" AND available_at >= %s AND (available_at > %s OR `offset` > %s){until}"
        f" ORDER BY available_at, `offset` LIMIT {limit:d}",
        [scheduled_topic(topic), after[0], after[0], after[1], *bounds],
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def by_place(using: str, topic: str, place: Place) -> list[dict[str, Any]]:
    """The message at that place, if it is scheduled."""
    rows = session.fetch(
        using,
        "SELECT `offset`, partition_key, id, consumer_group, payload, metadata, available_at, created_at"
        f" FROM queue_messages m FORCE INDEX (queue_messages_dedupe){_AT_PLACE}",
        [scheduled_topic(topic), *place],
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]
