"""Copies of messages, their progress in ``queue_offsets`` (the *marks*), and the messages that a backfill must copy.

A mark belongs to the topic that the copies go to. Its group is empty, and its partition key is the mark's name.
``copying`` says what each mark is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from ...store import log, offsets
from ...store.connection import session
from ...store.connection.dialect import NOW_MS, STATE_OF_MESSAGE, flat, placeholders, union
from ...store.connection.session import Row
from ...store.log import NewRow

_INDEX = "FORCE INDEX (queue_offsets_partition)"
_ROW = " WHERE consumer_group = '' AND topic = %s AND partition_key = %s"
_NAMED = "WHERE consumer_group = '' AND topic = %s AND partition_key IN"
_MARK = f"SELECT offset_acked, scan_offset, paused FROM queue_offsets {_INDEX}{_ROW}"


@dataclass(frozen=True)
class Copy:
    """A copy of the message at ``offset``. ``original_id``: the id that handlers see; None for the id of the row."""

    offset: int
    row: NewRow
    original_id: str | None = None


@dataclass(frozen=True)
class Mark:
    """The content of a mark. ``finished``: the run that the mark belongs to has ended."""

    position: int
    number: int
    finished: bool


def mark(using: str, topic: str, name: str) -> Mark | None:
    """Return the mark of this name; None if there is none."""
    rows = session.fetch(using, _MARK, [topic, name])
    return _mark(rows[0]) if rows else None


def locked_mark(cursor: CursorWrapper, topic: str, name: str) -> Mark | None:
    """Return the mark of this name, and lock it until this transaction ends; None if there is none."""
    cursor.execute(f"{_MARK} FOR UPDATE", [topic, name])
    row = cursor.fetchone()
    return _mark(row) if row else None


def begin_marks(cursor: CursorWrapper, topic: str, rows: Sequence[tuple[str, int, int]]) -> None:
    """Insert the marks, given as (name, position, number), that do not exist."""
    cursor.execute(
        f"INSERT INTO queue_offsets {offsets.COLUMNS} VALUES "
        + ", ".join([f"('', %s, %s, %s, %s, 0, {NOW_MS})"] * len(rows))
        + " ON DUPLICATE KEY UPDATE offset_acked = queue_offsets.offset_acked",
        flat([topic, *one] for one in sorted(rows)),
    )


def move_mark(cursor: CursorWrapper, topic: str, name: str, position: int, more: int) -> None:
    """Move a mark that this transaction has locked to ``position``, and add ``more`` to its number."""
    cursor.execute(
        f"UPDATE queue_offsets {_INDEX} SET offset_acked = %s, scan_offset = scan_offset + %s,"
        f" updated_at = {NOW_MS}{_ROW}",
        [position, more, topic, name],
    )


def finish_mark(cursor: CursorWrapper, topic: str, name: str) -> None:
    cursor.execute(
        f"UPDATE queue_offsets {_INDEX} SET paused = 1, updated_at = {NOW_MS}{_ROW}", [topic, name]
    )


def delete_marks(cursor: CursorWrapper, topic: str, names: Sequence[str]) -> None:
    cursor.execute(
        f"DELETE o FROM queue_offsets o {_INDEX} {_NAMED} ({placeholders(names)})", [topic, *sorted(names)]
    )


def sum_of_numbers(using: str, topic: str, names: Sequence[str]) -> int:
    """Return the sum of the numbers of these marks."""
    rows = session.fetch(
        using,
        f"SELECT COALESCE(SUM(scan_offset), 0) FROM queue_offsets {_INDEX} {_NAMED} ({placeholders(names)})",
        [topic, *names],
    )
    return int(rows[0][0])


def reserve(cursor: CursorWrapper, topic: str, name: str, duration_us: int) -> int:
    """Reserve the next ``duration_us`` microseconds of the database's clock.

    Return the microseconds until they begin; 0 if there is no such mark.
    """
    cursor.execute(
        f"SELECT GREATEST(offset_acked, {NOW_MS} * 1000), {NOW_MS} * 1000 FROM queue_offsets {_INDEX}{_ROW} FOR UPDATE",
        [topic, name],
    )
    if (row := cursor.fetchone()) is None:
        return 0
    begins, now = map(int, row)
    cursor.execute(
        f"UPDATE queue_offsets {_INDEX} SET offset_acked = %s{_ROW}", [begins + duration_us, topic, name]
    )
    return begins - now


def insert(cursor: CursorWrapper, topic: str, copies: Sequence[Copy]) -> int:
    """Append copies to the log, as ``log.insert`` does. Return the first copy's offset; the others follow it."""
    rows = [(f"{copy.row.sql}, %s", [*copy.row.params(topic), copy.original_id]) for copy in copies]
    return log.insert_values(cursor, topic, rows, log.COPY_COLUMNS)


def _mark(row: Row) -> Mark:
    position, number, finished = row
    return Mark(int(position), int(number), bool(finished))


@dataclass(frozen=True)
class OpenMessage:
    """A message that a group has not acknowledged, and that no backfill copied. ``has_state``: has delivery state."""

    offset: int
    partition: str
    size: int
    has_state: bool


_IS_COPY = "(m.consumer_group <> '' AND m.original_id IS NOT NULL)"
"""True for the copies of a backfill. Also for redriven messages and retries, which a new group does not have."""


def open_messages(
    cursor: CursorWrapper, topic: str, group: str, above: int, upto: int | None, limit: int
) -> list[OpenMessage]:
    """Return the first ``limit`` messages above ``above`` that the group has not acknowledged, without copies.

    One statement reads all. So if the result has a message, it also has every open message that was committed before
    that one was published.
    """
    end, params = (" AND m.`offset` <= %s", [upto]) if upto is not None else ("", [])
    cursor.execute(
        "SELECT m.`offset`, m.partition_key, LENGTH(m.payload) + LENGTH(m.metadata), s.acked IS NOT NULL"
        f" FROM queue_messages m FORCE INDEX (queue_messages_tail) LEFT JOIN {STATE_OF_MESSAGE}"
        f" WHERE m.topic = %s AND m.`offset` > %s{end} AND m.consumer_group IN ('', %s) AND NOT {_IS_COPY}"
        f" AND (s.acked IS NULL OR s.acked = 0) ORDER BY m.`offset` LIMIT {limit:d}",
        [group, topic, above, *params, group],
    )
    return [
        OpenMessage(int(offset), name, int(size), bool(has_state))
        for offset, name, size, has_state in cursor.fetchall()
    ]


def last_copies(cursor: CursorWrapper, topic: str, group: str, partitions: Sequence[str]) -> dict[str, int]:
    """Return the offset of each partition's newest copy. Partitions without a copy are missing from the result."""
    branch = (
        "SELECT m.partition_key, m.`offset` FROM queue_messages m FORCE INDEX (queue_messages_partition)"
        f" WHERE m.topic = %s AND m.partition_key = %s AND m.consumer_group = %s AND {_IS_COPY}"
        " ORDER BY m.`offset` DESC LIMIT 1"
    )
    cursor.execute(
        union(branch, len(partitions)), flat([topic, partition, group] for partition in partitions)
    )
    return {name: int(offset) for name, offset in cursor.fetchall()}


def contents(cursor: CursorWrapper, offsets: Sequence[int]) -> list[Row]:
    """Return (offset, partition, id, payload, metadata, publication time) of messages, in offset order."""
    cursor.execute(
        "SELECT `offset`, partition_key, id, payload, metadata, published_at FROM queue_messages"
        f" FORCE INDEX (PRIMARY) WHERE `offset` IN ({placeholders(offsets)}) ORDER BY `offset`",
        list(offsets),
    )
    return list(cursor.fetchall())


def acknowledge(cursor: CursorWrapper, group: str, topic: str, messages: Sequence[tuple[str, int]]) -> None:
    """Acknowledge messages, given as (partition, offset). The INSERT fails if one has delivery state."""
    one = f"(%s, %s, %s, %s, 1, 0, {NOW_MS}, 0, 0, 0, 0, 0, '', {NOW_MS}, {NOW_MS})"
    cursor.execute(
        "INSERT INTO queue_delivery_state (consumer_group, topic, partition_key, message_offset, acked, in_flight,"
        " invisible_until, retry_count, failure_count, delivery_token, handed, alone, delivered_to, delivered_at,"
        f" acked_at) VALUES {', '.join([one] * len(messages))}",
        flat([group, topic, *each] for each in messages),
    )
