"""Promotion: move scheduled messages into the log when they are due."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from django.db import DatabaseError
from django.db.backends.utils import CursorWrapper

from ..policy import names
from ..policy.batching import BYTES_PER_STATEMENT, batches_by_weight
from ..store import garbage, offsets, schedule
from ..store.connection import errors, session, session_variables
from ..store.schedule import DueMessage

logger = logging.getLogger("django_mqueue")

ROWS = 500
AVOIDED_FOR = 30.0
"""Seconds to skip a message whose promotion would wait for a publisher's open transaction."""
DOUBTED_FOR = 1.0
"""Seconds to skip a message if an open transaction cancels it, moves it, publishes its id, or changes its group."""

IN_LOG = "the log already holds a message with its id"
GROUP_NOT_REGISTERED = "its group is no longer registered"
NOT_NEEDED = "its group was reset, and no longer needs this retry"


@dataclass
class Promotion:
    """The result of one transaction. ``more``: promote again at once. ``waited``: a lock wait timeout ended it."""

    promoted: int = 0
    dropped: dict[DueMessage, str] = field(default_factory=dict)
    more: bool = False
    waited: bool = False


class Promoter:
    """Promotes the scheduled messages of one topic, for one process."""

    def __init__(self, using: str, topic: str) -> None:
        self.using, self.topic = using, topic
        self._rows = ROWS
        self._avoided: dict[int, float] = {}

    def promote(self) -> Promotion:
        """Move up to 500 due messages, or 4 MiB, into the log in one transaction, in the order of their due times.

        One worker promotes a topic at a time. A message is skipped while an open transaction changes it, publishes
        its id, or removes its group. After a lock wait timeout, a smaller batch is tried. A message is dropped if the
        log holds its id, or if its group is not registered.
        """
        tried: list[int] = []
        try:
            with session_variables.short_lock_wait_timeout(self.using):
                # READ UNCOMMITTED also shows ids that a publisher has not committed: the INSERT would wait for them.
                result = session.run(
                    self.using,
                    lambda cursor: self._move(cursor, tried),
                    level="READ UNCOMMITTED",
                )
        except DatabaseError as error:
            if errors.is_duplicate(error) and not session.in_transaction(self.using):
                # An id was published after the lookup. The next transaction finds it.
                return Promotion(more=True)
            if not errors.is_lock_wait(error):
                raise
            self._avoid_blocked(tried)
            return Promotion(more=True, waited=True)
        self._rows = min(8 * self._rows, ROWS)
        for row, reason in result.dropped.items():
            logger.warning(
                "scheduled message dropped: topic %s, id %r, key %r: %s",
                self.topic, row.id, names.key_of(row.partition), reason,
            )  # fmt: skip
        return result

    def _avoid_blocked(self, tried: list[int]) -> None:
        """Skip a single message that waits for a publisher. If several were tried, try fewer next time."""
        if len(tried) == 1:
            self._avoided[tried[0]] = time.monotonic() + AVOIDED_FOR
        # More messages may wait for publishers: try few at a time until a transaction succeeds.
        self._rows = max(len(tried) // 8, 1)

    def _move(self, cursor: CursorWrapper, tried: list[int]) -> Promotion:
        tried.clear()
        if not schedule.lock_promotion(cursor, self.topic):
            return Promotion()
        now = time.monotonic()
        self._avoided = {offset: until for offset, until in self._avoided.items() if until > now}
        found = schedule.lock_due(cursor, self.topic, self._avoided, self._rows)
        rows = next(batches_by_weight(found, attrgetter("size"), BYTES_PER_STATEMENT, ROWS), [])
        # A transaction that cancels or moves a message has locked its id, and waits for the row locked here. Skip it.
        free = garbage.lock_unlocked(cursor, [row.offset for row in rows]) if rows else set()
        self._avoided |= {row.offset: now + DOUBTED_FOR for row in rows if row.offset not in free}
        rows = [row for row in rows if row.offset in free]
        tried += [row.offset for row in rows]
        if not rows:
            return Promotion()
        dropped, changing = _not_needed(cursor, self.topic, rows)
        result = Promotion(dropped=dropped)
        rest = [row for row in rows if row not in dropped and row not in changing]
        stored = schedule.in_log(cursor, self.topic, [row.offset for row in rest]) if rest else {}
        sure = garbage.lock_unlocked(cursor, sorted(set(stored.values()))) if stored else set()
        result.dropped |= {row: IN_LOG for row in rest if stored.get(row.offset) in sure}
        moving = [row.offset for row in rest if row.offset not in stored]
        # Skip these for a moment. Otherwise each query would return them first, and no later message.
        doubtful = [row.offset for row in rest if stored.get(row.offset, 0) not in sure | {0}]
        doubtful += [row.offset for row in changing]
        self._avoided |= dict.fromkeys(doubtful, now + DOUBTED_FOR)
        if moving:
            schedule.append(cursor, self.topic, moving)
        if ended := [*moving, *(row.offset for row in result.dropped)]:
            garbage.delete(cursor, self.topic, (), ended)
        result.promoted = len(moving)
        result.more = bool(ended or doubtful) and (len(found) == self._rows or len(rows) < len(found))
        return result


def _not_needed(
    cursor: CursorWrapper, topic: str, rows: Sequence[DueMessage]
) -> tuple[dict[DueMessage, str], set[DueMessage]]:
    """Return the rows to drop, with the reasons, and the rows whose group an open transaction changes.

    The first read, at READ UNCOMMITTED, misses a registration whose deletion may not last: a reset inserts it again,
    and ``unsubscribe`` may roll back. So a row is dropped only after a second, locking read.
    """
    first = offsets.registered_among(cursor, topic, {row.group for row in rows if row.group})
    candidates = _dropped(cursor, rows, first)
    sure = offsets.lock_registrations(cursor, topic, {row.group for row in candidates})
    registered = {group: found for group, found in sure.items() if found is not None}
    dropped = _dropped(cursor, [row for row in candidates if row.group in sure], registered)
    return dropped, {row for row in candidates if row.group not in sure}


def _dropped(
    cursor: CursorWrapper, rows: Sequence[DueMessage], registered: Mapping[str, tuple[int, int]]
) -> dict[DueMessage, str]:
    """Return the rows to drop because their group is gone, or because it no longer needs a parked retry.

    A parked retry of an earlier registration is not needed if its original is in the log, or not above the new start.
    """
    gone = [row for row in rows if row.group and row.group not in registered]
    older = [
        row
        for row in rows
        if row.generation and row.group in registered and row.generation != registered[row.group][0]
    ]
    there = schedule.existing_offsets(cursor, {row.original_offset for row in older})
    covered = [
        row
        for row in older
        if row.original_offset in there or row.original_offset <= registered[row.group][1]
    ]
    return dict.fromkeys(gone, GROUP_NOT_REGISTERED) | dict.fromkeys(covered, NOT_NEEDED)
