"""Promotion: scheduled messages that are due get their place in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from django.db import DatabaseError
from django.db.backends.utils import CursorWrapper

from ..policy import names
from ..store import due, garbage, patience, session
from ..store.dialect import DUPLICATE_ENTRY, LOCK_WAIT_TIMEOUT, RETRIABLE
from ..store.due import Due

logger = logging.getLogger("django_mqueue")

ROWS = 500
BYTES = 4 * 1_048_576
AVOIDED_FOR = 30.0
"""Seconds for which a message is left alone that would have to wait for a publisher's open transaction."""
DOUBTED_FOR = 1.0
"""The same for one whose id is in the log of a transaction that may yet be rolled back."""

IN_LOG = "the log holds a message of its id"
NOBODYS = "its group is not registered any more"


@dataclass
class Promotion:
    """What one transaction did: how many messages came into the log, and which were dropped and why.

    ``more``: there may be more that are due. ``waited``: for a publisher's lock, in vain.
    """

    promoted: int = 0
    dropped: dict[Due, str] = field(default_factory=dict)
    more: bool = False
    waited: bool = False


class Promoter:
    """One process's part in the promotion of a topic's messages."""

    def __init__(self, using: str, topic: str) -> None:
        self.using, self.topic = using, topic
        self._rows = ROWS
        self._avoided: dict[int, float] = {}

    def promote(self) -> Promotion:
        """Put up to 500 due messages (or 4 MiB) into the log, in the order of their times, in one transaction.

        Of many workers one does it at a time. None waits for another, nor for a publisher: a message that somebody
        cancels, moves or replaces at this moment is not due until that is committed, and one whose id somebody is
        publishing waits until that is decided. Dropped is what the log holds already, and what was for a group that is
        not registered.
        """
        tried: list[int] = []
        try:
            with patience.hardly_any(self.using):
                # So that an id is seen that a publisher has not committed yet: the INSERT would wait for him.
                result = session.run(
                    self.using,
                    lambda cursor: self._move(cursor, tried),
                    level="READ UNCOMMITTED",
                    again_after=RETRIABLE - {LOCK_WAIT_TIMEOUT},
                )
        except DatabaseError as error:
            code = session.error_code(error)
            if code == DUPLICATE_ENTRY and not session.in_transaction(self.using):
                # An id has been published since it was looked up: now it is found.
                return Promotion(more=True)
            if code != LOCK_WAIT_TIMEOUT:
                raise
            self._in_the_way(tried)
            return Promotion(more=True, waited=True)
        self._rows = min(8 * self._rows, ROWS)
        for row, reason in result.dropped.items():
            logger.warning(
                "%s: scheduled message %r (key %r) is dropped: %s",
                self.topic, row.id, names.key_of(row.partition), reason,
            )  # fmt: skip
        return result

    def _in_the_way(self, tried: list[int]) -> None:
        """One of those would have to wait for a publisher: find out which, and let the others go on without it."""
        if len(tried) == 1:
            self._avoided[tried[0]] = time.monotonic() + AVOIDED_FOR
        # Others in the way may stand beside it: one by one, until some get through.
        self._rows = max(len(tried) // 8, 1)

    def _move(self, cursor: CursorWrapper, tried: list[int]) -> Promotion:
        tried.clear()
        if not due.lock_promotion(cursor, self.topic):
            return Promotion()
        now = time.monotonic()
        self._avoided = {offset: until for offset, until in self._avoided.items() if until > now}
        found = due.lock_due(cursor, self.topic, self._avoided, self._rows)
        rows = list(_light_enough(found))
        # Who cancels or moves one has locked its id first, and waits for the row now: for him not to be waited for.
        free = garbage.lock_free(cursor, [row.offset for row in rows]) if rows else set()
        self._avoided |= {row.offset: now + DOUBTED_FOR for row in rows if row.offset not in free}
        rows = [row for row in rows if row.offset in free]
        tried += [row.offset for row in rows]
        if not rows:
            return Promotion()
        result = Promotion(dropped=_nobodys(cursor, self.topic, rows))
        rest = [row for row in rows if row not in result.dropped]
        stored = due.in_log(cursor, self.topic, [row.offset for row in rest]) if rest else {}
        sure = garbage.lock_free(cursor, sorted(set(stored.values()))) if stored else set()
        result.dropped |= {row: IN_LOG for row in rest if stored.get(row.offset) in sure}
        moving = [row.offset for row in rest if row.offset not in stored]
        # They must not stand before the others at every look.
        doubtful = [row.offset for row in rest if stored.get(row.offset, 0) not in sure | {0}]
        self._avoided |= dict.fromkeys(doubtful, now + DOUBTED_FOR)
        if moving:
            due.append(cursor, self.topic, moving)
        if ended := [*moving, *(row.offset for row in result.dropped)]:
            due.delete(cursor, ended)
        result.promoted = len(moving)
        result.more = bool(ended or doubtful) and (len(found) == self._rows or len(rows) < len(found))
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
    """Those for groups that are gone; and of what a group set aside before it began anew what comes again anyway, or
    lies before its new start. What the log holds no more comes now: the group has never done it."""
    lives = due.lives(cursor, topic, {row.group for row in rows if row.group})
    gone = [row for row in rows if row.group and row.group not in lives]
    older = [row for row in rows if row.life and row.group in lives and row.life != lives[row.group][0]]
    there = due.still_there(cursor, {row.before for row in older})
    gone += [row for row in older if row.before in there or row.before <= lives[row.group][1]]
    return dict.fromkeys(gone, NOBODYS)
