"""The topics of a database, and offset ranges of their logs. ``pages`` reads these ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.backends.utils import CursorWrapper

from ...store import log
from ...store.connection import session
from ...store.log import MessageIdentity
from ...store.queries import skip_scan
from .pages import targets_condition

PAGE = 10_000
"""Maximum rows of a statement of ``oldest_uncommitted``."""

_RANGE = (
    "FROM queue_messages m FORCE INDEX (queue_messages_tail)"
    " WHERE m.topic = %s AND m.`offset` > %s AND m.`offset` <= %s"
)
"""In all functions of this module, a range excludes ``above`` and includes ``upto``."""


def topics(using: str, topic: str | None = None) -> set[str]:
    """Return all topics that hold a message or ever had a subscription. ``topic``: check only this topic."""
    which, params = ("= %s", [topic]) if topic is not None else ("> ''", [])
    found = skip_scan.topics_in_log(using) if topic is None else [topic] if log.newest(using, topic) else []
    rows = session.fetch(
        using,
        "SELECT topic FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
        f" WHERE consumer_group = '' AND topic {which} AND partition_key = ''",
        params,
    )
    return {*found, *(str(topic) for (topic,) in rows)}


def nth_above(
    using: str, topic: str, above: int, upto: int, number: int, targets: Sequence[str] | None
) -> int | None:
    """Return the offset of the ``number``-th row in a range, from the index alone; None if there are fewer rows."""
    rows = session.fetch(
        using,
        f"SELECT m.`offset` {_RANGE}{targets_condition(targets)} ORDER BY m.`offset` LIMIT 1 OFFSET {number - 1:d}",
        [topic, above, upto, *(targets or ())],
    )
    return int(rows[0][0]) if rows else None


def count(using: str, topic: str, above: int, upto: int, targets: Sequence[str] | None) -> int:
    """Return the number of rows in a range, which should be short: the server reads an index entry for each row."""
    params = [topic, above, upto, *(targets or ())]
    return int(session.fetch(using, f"SELECT COUNT(*) {_RANGE}{targets_condition(targets)}", params)[0][0])


class Last(NamedTuple):
    """The last message of a range or an archive. Its id shows whether the database still has the archived log."""

    offset: int
    id: str


def last(using: str, topic: str, above: int, upto: int) -> Last | None:
    """Return the last row in a range; None if it is empty."""
    rows = session.fetch(
        using,
        f"SELECT m.`offset`, m.id {_RANGE} ORDER BY m.`offset` DESC LIMIT 1",
        [topic, above, upto],
    )
    return Last(int(rows[0][0]), str(rows[0][1])) if rows else None


def name_at(using: str, offset: int) -> tuple[str, str] | None:
    """Return (topic, id) of the row at an offset, in any topic; None if there is no row."""
    rows = session.fetch(using, "SELECT topic, id FROM queue_messages WHERE `offset` = %s", [offset])
    return (str(rows[0][0]), str(rows[0][1])) if rows else None


def oldest_uncommitted(using: str, topic: str, above: int, upto: int) -> MessageIdentity | None:
    """Return the first uncommitted row in a range; None if all rows are committed.

    It reads the primary key, because an INSERT that waits for a lock on another index has its row only there. So the
    server reads the rows of all topics in the range.
    """
    in_range = (
        "SELECT `offset` FROM queue_messages FORCE INDEX (PRIMARY)"
        " WHERE topic = %s AND `offset` > %s AND `offset` <= %s ORDER BY `offset`"
    )
    at_offset = (
        "SELECT `offset`, id, published_at FROM queue_messages FORCE INDEX (PRIMARY) WHERE `offset` = %s"
    )
    while above < upto:
        rows = _read(using, "READ UNCOMMITTED", f"{in_range} LIMIT {PAGE:d}", [topic, above, upto])
        end = int(rows[-1][0]) if len(rows) == PAGE else upto
        committed = set(_read(using, "READ COMMITTED", in_range, [topic, above, end]))
        for row in rows:
            # If the row no longer exists, its transaction was rolled back.
            if row not in committed and (found := _read(using, "READ UNCOMMITTED", at_offset, row)):
                return MessageIdentity(*found[0])
        above = end
    return None


def _read(using: str, level: str, sql: str, params: Sequence[Any]) -> list[session.Row]:
    def work(cursor: CursorWrapper) -> list[session.Row]:
        cursor.execute(sql, params)
        return list(cursor.fetchall())

    return session.run(using, work, level=level)
