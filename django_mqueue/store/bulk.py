"""Which topics there are, and how to cut their log into stretches of offsets; ``pages`` reads these."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.backends.utils import CursorWrapper

from . import log, session
from .distinct import Names
from .log import Mark
from .pages import only

PAGE = 10_000
"""Rows of the primary key that one statement reads."""


def topics(using: str, like: str | None = None) -> set[str]:
    """All topics that hold a message or were ever registered for; ``like``: only this one."""
    only, params = ("= %s", [like]) if like is not None else ("> ''", [])
    stored = Names("queue_messages", "queue_messages_tail", "topic", "topic")
    found = stored.all(using) if like is None else [like] if log.newest(using, like) else []
    rows = session.fetch(
        using,
        "SELECT topic FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
        f" WHERE consumer_group = '' AND topic {only} AND partition_key = ''",
        params,
    )
    return {*found, *(str(topic) for (topic,) in rows)}


def nth_above(
    using: str, topic: str, above: int, upto: int, number: int, targets: Sequence[str] | None
) -> int | None:
    """The offset of the ``number``-th row above an offset, from the index alone; None where there are fewer."""
    rows = session.fetch(
        using,
        "SELECT m.`offset` FROM queue_messages m FORCE INDEX (queue_messages_tail)"
        f" WHERE m.topic = %s AND m.`offset` > %s AND m.`offset` <= %s{only(targets)}"
        f" ORDER BY m.`offset` LIMIT 1 OFFSET {number - 1:d}",
        [topic, above, upto, *(targets or ())],
    )
    return int(rows[0][0]) if rows else None


def last(using: str, topic: str, above: int, upto: int) -> tuple[int, str] | None:
    """Offset and id of the last row between two offsets."""
    rows = session.fetch(
        using,
        "SELECT m.`offset`, m.id FROM queue_messages m FORCE INDEX (queue_messages_tail)"
        " WHERE m.topic = %s AND m.`offset` > %s AND m.`offset` <= %s ORDER BY m.`offset` DESC LIMIT 1",
        [topic, above, upto],
    )
    return (int(rows[0][0]), str(rows[0][1])) if rows else None


def name_at(using: str, offset: int) -> tuple[str, str] | None:
    """Topic and id of the row at an offset, of whatever topic."""
    rows = session.fetch(using, "SELECT topic, id FROM queue_messages WHERE `offset` = %s", [offset])
    return (str(rows[0][0]), str(rows[0][1])) if rows else None


def count(using: str, topic: str, above: int, upto: int, targets: Sequence[str] | None) -> int:
    """How many rows there are between two offsets. Goes through them: for stretches known to be short."""
    rows = session.fetch(
        using,
        "SELECT COUNT(*) FROM queue_messages m FORCE INDEX (queue_messages_tail)"
        f" WHERE m.topic = %s AND m.`offset` > %s AND m.`offset` <= %s{only(targets)}",
        [topic, above, upto, *(targets or ())],
    )
    return int(rows[0][0])


def oldest_uncommitted(using: str, topic: str, above: int, upto: int) -> Mark | None:
    """The first row between two offsets that its transaction has not committed; None where all are.

    Reads the primary key: an INSERT that waits for a lock at another index has its row there alone. Goes through all
    rows of the log between the offsets.
    """
    while above < upto:
        there = _offsets(using, topic, above, upto, "READ UNCOMMITTED", PAGE)
        end = there[-1] if len(there) == PAGE else upto
        committed = set(_offsets(using, topic, above, end, "READ COMMITTED"))
        for offset in there:
            if offset not in committed and (mark := _mark(using, offset)):
                return mark
        above = end
    return None


def _offsets(using: str, topic: str, above: int, upto: int, level: str, most: int | None = None) -> list[int]:
    limit = f" LIMIT {most:d}" if most is not None else ""

    def read(cursor: CursorWrapper) -> list[int]:
        cursor.execute(
            "SELECT `offset` FROM queue_messages FORCE INDEX (PRIMARY)"
            f" WHERE topic = %s AND `offset` > %s AND `offset` <= %s ORDER BY `offset`{limit}",
            [topic, above, upto],
        )
        return [int(offset) for (offset,) in cursor.fetchall()]

    return session.run(using, read, level=level)


def _mark(using: str, offset: int) -> Mark | None:
    """An uncommitted row; None if it was rolled back."""

    def read(cursor: CursorWrapper) -> Mark | None:
        cursor.execute(
            "SELECT id, published_at FROM queue_messages FORCE INDEX (PRIMARY) WHERE `offset` = %s", [offset]
        )
        row = cursor.fetchone()
        return Mark(offset, str(row[0]), int(row[1])) if row else None

    return session.run(using, read, level="READ UNCOMMITTED")
