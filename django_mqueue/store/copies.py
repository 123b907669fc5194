"""Copies of messages, and how far they were made: rows of ``queue_offsets`` beside the topic's own.

Such a row stands under the topic that the copies go to, without a group, and with a name in place of a partition. A
run of copies has one head, one row for each lane (all messages of a partition are in one lane, in the order of their
offsets), and one that says when the next may be stored. Who stores copies moves their lane forward in the same
transaction, so none is stored twice, whatever is run again, and whatever has been deleted since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from . import session
from .dialect import NOW_MS, flat, marks
from .gates import locking_topic
from .log import INSERT_COLUMNS, NewRow

_INDEX = "FORCE INDEX (queue_offsets_partition)"
_ROW = " WHERE consumer_group = '' AND topic = %s AND partition_key = %s"
_COLUMNS = "(consumer_group, topic, partition_key, offset_acked, scan_offset, paused, updated_at)"


@dataclass(frozen=True)
class Copy:
    """A message about to be stored. ``offset``: of the one that it is made of. ``original_id``: what handlers are to
    see as its id; None: its own."""

    offset: int
    row: NewRow
    original_id: str | None = None


@dataclass(frozen=True)
class Mark:
    """A row of progress: ``position``, a ``number`` beside it, whether it is ``finished``, and when it last changed."""

    position: int
    number: int
    finished: bool
    changed: int


def mark(using: str, topic: str, name: str) -> Mark | None:
    rows = session.fetch(
        using,
        f"SELECT offset_acked, scan_offset, paused, updated_at FROM queue_offsets {_INDEX}{_ROW}",
        [topic, name],
    )
    return _mark(rows[0]) if rows else None


def locked_mark(cursor: CursorWrapper, topic: str, name: str) -> Mark | None:
    """The same, and nobody else changes it until this transaction ends."""
    cursor.execute(
        f"SELECT offset_acked, scan_offset, paused, updated_at FROM queue_offsets {_INDEX}{_ROW} FOR UPDATE",
        [topic, name],
    )
    row = cursor.fetchone()
    return _mark(row) if row else None


def begin_marks(cursor: CursorWrapper, topic: str, rows: Sequence[tuple[str, int, int]]) -> None:
    """Insert rows, given as (name, position, number), that are not there yet."""
    cursor.execute(
        f"INSERT INTO queue_offsets {_COLUMNS} VALUES "
        + ", ".join([f"('', %s, %s, %s, %s, 0, {NOW_MS})"] * len(rows))
        + " ON DUPLICATE KEY UPDATE offset_acked = queue_offsets.offset_acked",
        flat([topic, *one] for one in sorted(rows)),
    )


def move_mark(cursor: CursorWrapper, topic: str, name: str, position: int, more: int) -> None:
    """Move a row that this transaction has locked; its number grows by ``more``."""
    cursor.execute(
        f"UPDATE queue_offsets {_INDEX} SET offset_acked = %s, scan_offset = scan_offset + %s,"
        f" updated_at = {NOW_MS}{_ROW}",
        [position, more, topic, name],
    )


def finish_mark(cursor: CursorWrapper, topic: str, name: str) -> None:
    cursor.execute(
        f"UPDATE queue_offsets {_INDEX} SET paused = 1, updated_at = {NOW_MS}{_ROW}", [topic, name]
    )


def forget_marks(cursor: CursorWrapper, topic: str, names: Sequence[str]) -> None:
    cursor.execute(
        f"DELETE o FROM queue_offsets o {_INDEX} WHERE consumer_group = '' AND topic = %s"
        f" AND partition_key IN ({marks(sorted(names))})",
        [topic, *sorted(names)],
    )


def numbers(using: str, topic: str, names: Sequence[str]) -> int:
    """The sum of what these rows have as their numbers."""
    rows = session.fetch(
        using,
        f"SELECT COALESCE(SUM(scan_offset), 0) FROM queue_offsets {_INDEX} WHERE consumer_group = '' AND topic = %s"
        f" AND partition_key IN ({marks(list(names))})",
        [topic, *names],
    )
    return int(rows[0][0])


def reserve(cursor: CursorWrapper, topic: str, name: str, took_us: int) -> int:
    """Take the next stretch of time, so long in microseconds, by the database's clock: how long it is until it begins.

    Stretches do not overlap, whoever takes them; what was not taken when its time came is gone.
    """
    cursor.execute(
        f"SELECT GREATEST(offset_acked, {NOW_MS} * 1000), {NOW_MS} * 1000 FROM queue_offsets {_INDEX}{_ROW} FOR UPDATE",
        [topic, name],
    )
    begins, now = (int(value) for value in cursor.fetchone())
    cursor.execute(
        f"UPDATE queue_offsets {_INDEX} SET offset_acked = %s{_ROW}", [begins + took_us, topic, name]
    )
    return begins - now


def lock_registration(
    cursor: CursorWrapper, group: str, topic: str, *, alone: bool = False
) -> tuple[int, bool] | None:
    """The life of a group's registration, and whether it is paused, which nobody changes until this transaction ends.

    ``alone``: nor does anybody else hold it so.
    """
    lock = "FOR UPDATE" if alone else "LOCK IN SHARE MODE"
    cursor.execute(
        f"SELECT id, paused FROM queue_offsets {_INDEX}"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key = '' {lock}",
        [group, topic],
    )
    row = cursor.fetchone()
    return (int(row[0]), bool(row[1])) if row else None


def insert(cursor: CursorWrapper, topic: str, copies: Sequence[Copy]) -> int:
    """Append copies, through the gate like every row of the log; the first one's offset, which the others follow.

    Raises ``IntegrityError`` as ``log.insert`` does.
    """
    gate, gate_params = locking_topic(topic)
    first, *others = copies
    values = ", ".join([f"({gate}, {_values(first)}", *(f"(%s, {_values(one)}" for one in others)])
    cursor.execute(
        f"INSERT INTO queue_messages ({INSERT_COLUMNS}, original_id) VALUES {values}",
        [
            *gate_params,
            *first.row.params(topic),
            first.original_id,
            *flat([topic, *one.row.params(topic), one.original_id] for one in others),
        ],
    )
    return int(cursor.lastrowid)


def _values(copy: Copy) -> str:
    return f"{copy.row.sql.removesuffix(')')}, %s)"


def _mark(row: session.Row) -> Mark:
    position, number, finished, changed = row
    return Mark(int(position), int(number), bool(finished), int(changed))
