"""The topics of a database, and offset ranges of their logs. ``pages`` reads these ranges."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.backends.utils import CursorWrapper

from ...store import log
from ...store.connection import session
from ...store.log import MessageIdentity
from ...store.queries import topic_index
from .pages import only

PAGE = 10_000
"""Maximum rows of the primary key that a statement reads."""


def topics(using: str, like: str | None = None) -> set[str]:
    """Return all topics that hold a message or ever had a subscription. ``like``: check only this topic."""
    only, params = ("= %s", [like]) if like is not None else ("> ''", [])
    found = topic_index.in_log(using) if like is None else [like] if log.newest(using, like) else []
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
    """Return the offset of the ``number``-th row in a range, from the index alone; None if the range has fewer rows.

    The range excludes ``above`` and includes ``upto``, as in all functions of this module. ``targets``: see
    ``pages.only``.
    """
    rows = session.fetch(
        using,
        "SELECT m.`offset` FROM queue_messages m FORCE INDEX (queue_messages_tail)"
        f" WHERE m.topic = %s AND m.`offset` > %s AND m.`offset` <= %s{only(targets)}"
        f" ORDER BY m.`offset` LIMIT 1 OFFSET {number - 1:d}",
        [topic, above, upto, *(targets or ())],
    )
    return int(rows[0][0]) if rows else None


def last(using: str, topic: str, above: int, upto: int) -> tuple[int, str] | None:
    """Return (offset, id) of the last row in a range; None if it is empty."""
    rows = session.fetch(
        using,
        "SELECT m.`offset`, m.id FROM queue_messages m FORCE INDEX (queue_messages_tail)"
        " WHERE m.topic = %s AND m.`offset` > %s AND m.`offset` <= %s ORDER BY m.`offset` DESC LIMIT 1",
        [topic, above, upto],
    )
    return (int(rows[0][0]), str(rows[0][1])) if rows else None


def name_at(using: str, offset: int) -> tuple[str, str] | None:
    """Return (topic, id) of the row at an offset, in any topic; None if there is no row."""
    rows = session.fetch(using, "SELECT topic, id FROM queue_messages WHERE `offset` = %s", [offset])
    return (str(rows[0][0]), str(rows[0][1])) if rows else None


def count(using: str, topic: str, above: int, upto: int, targets: Sequence[str] | None) -> int:
    """Return the number of rows in a range. It reads an index entry for each row, so the range should be short."""
    rows = session.fetch(
        using,
        "SELECT COUNT(*) FROM queue_messages m FORCE INDEX (queue_messages_tail)"
        f" WHERE m.topic = %s AND m.`offset` > %s AND m.`offset` <= %s{only(targets)}",
        [topic, above, upto, *(targets or ())],
    )
    return int(rows[0][0])


def oldest_uncommitted(using: str, topic: str, above: int, upto: int) -> MessageIdentity | None:
    """Return the first uncommitted row in a range; None if all rows are committed.

    It reads the primary key, because an INSERT that waits for a lock on another index has its row only there. It reads
    all rows of the log in the range, of all topics.
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


def _mark(using: str, offset: int) -> MessageIdentity | None:
    """Return an uncommitted row; None if it was rolled back."""

    def read(cursor: CursorWrapper) -> MessageIdentity | None:
        cursor.execute(
            "SELECT id, published_at FROM queue_messages FORCE INDEX (PRIMARY) WHERE `offset` = %s", [offset]
        )
        row = cursor.fetchone()
        return MessageIdentity(offset, str(row[0]), int(row[1])) if row else None

    return session.run(using, read, level="READ UNCOMMITTED")
