"""Promotion: scheduled messages that are due get their place in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from django.db.backends.utils import CursorWrapper

from ..policy import names
from ..store import due, garbage, session
from ..store.due import Due

logger = logging.getLogger("django_mqueue")

ROWS = 500
BYTES = 4 * 1_048_576

IN_LOG = "the log holds a message of its id"
NOBODYS = "its group is not registered any more"


@dataclass
class Promotion:
    """What one transaction did: how many messages came into the log, and which were dropped and why.

    ``more``: there may be more that are due.
    """

    promoted: int = 0
    dropped: dict[Due, str] = field(default_factory=dict)
    more: bool = False


def promote(using: str, topic: str) -> Promotion:
    """Put up to 500 due messages (or 4 MiB) of a topic into the log, in the order of their times, in one transaction.

    Of many workers one does it at a time. None waits for another, nor for a publisher: a message that somebody cancels,
    moves or replaces at this moment is not due until that is committed, and one whose id somebody is publishing waits
    until that is decided. Dropped is what the log holds already, and what was for a group that is not registered.
    """

    def work(cursor: CursorWrapper) -> Promotion:
        if not due.lock_promotion(cursor, topic):
            return Promotion()
        found = due.lock_due(cursor, topic, ROWS)
        rows = list(_light_enough(found))
        if not rows:
            return Promotion()
        result = Promotion(dropped=_nobodys(cursor, topic, rows))
        rest = [row for row in rows if row not in result.dropped]
        stored = due.in_log(cursor, topic, [row.offset for row in rest]) if rest else {}
        sure = garbage.lock_free(cursor, sorted(set(stored.values()))) if stored else set()
        result.dropped |= {row: IN_LOG for row in rest if stored.get(row.offset) in sure}
        moving = [row.offset for row in rest if row.offset not in stored]
        if moving:
            due.append(cursor, topic, moving)
        if ended := [*moving, *(row.offset for row in result.dropped)]:
            due.delete(cursor, ended)
        result.promoted = len(moving)
        result.more = bool(ended) and (len(found) == ROWS or len(rows) < len(found))
        return result

    # So that an id is seen that a publisher has not committed yet: the INSERT would wait for him.
    result = session.run(using, work, level="READ UNCOMMITTED")
    for row, reason in result.dropped.items():
        logger.warning(
            "%s: scheduled message %r (key %r) is dropped: %s",
            topic,
            row.id,
            names.key_of(row.partition),
            reason,
        )
    return result


def _light_enough(rows: Sequence[Due]) -> Iterator[Due]:
    """The first ones, as many as one transaction should move."""
    weight = 0
    for place, row in enumerate(rows):
        weight += row.size
        if place and weight > BYTES:
            return
        yield row


def _nobodys(cursor: CursorWrapper, topic: str, rows: Sequence[Due]) -> dict[Due, str]:
    """Those for groups that are gone; what a group set aside is also gone when the group began anew."""
    lives = due.lives(cursor, topic, {row.group for row in rows if row.group})
    return {
        row: NOBODYS
        for row in rows
        if row.group and (row.group not in lives or row.life not in (0, lives[row.group]))
    }
