"""Remove a group's leases, delivery state and positions after a reset or unsubscribe, in bounded transactions."""

from __future__ import annotations

import random
from functools import partial

from django.db import transaction
from django.db.backends.utils import CursorWrapper

from ...store import garbage, offsets, removal
from ...store.connection import session


def begin(cursor: CursorWrapper, topic: str, group: str) -> bool:
    """Remove up to 1,000 free rows of each table. Return whether rows are left, which ``finish`` removes."""
    for table in removal.START:
        removal.piece(cursor, group, topic, {table: removal.START[table]})
    if removal.is_done(cursor, group, topic):
        removal.forget(cursor, group, topic)
        return False
    removal.note(cursor, group, topic)
    return True


def finish(using: str, topic: str, group: str) -> None:
    """Remove the rows that are left, and wait for locks: now, or after the commit of the caller's transaction.

    Return at once in a worker's loop, which must not wait, and if Django calls no hook after the caller's commit. Then
    workers remove the rows piece by piece.
    """
    if session.calls_hooks(using):
        transaction.on_commit(partial(finish, using, topic, group), using=using, robust=True)
    if session.in_transaction(using) or session.waits_briefly(using):
        return
    rest = Removal(using, topic, group)
    while rest.step(wait=True):
        pass


def unfinished(using: str, topic: str) -> Removal | None:
    """Return a random unfinished removal, or None. A fixed choice might find the same locked rows each time."""
    groups = removal.unfinished(using, topic)
    return Removal(using, topic, random.choice(groups)) if groups else None


class Removal:
    """The remaining work of one removal. Several processes may do it at once."""

    def __init__(self, using: str, topic: str, group: str) -> None:
        self.using, self.topic, self.group = using, topic, group
        self._reached = removal.START

    def step(self, *, wait: bool = False) -> bool:
        """Remove the next piece. Return False at the end and, without ``wait``, if rows are locked."""
        if self._piece(wait=wait):
            return True
        self._reached = removal.START
        if session.run(self.using, partial(self._end, wait=wait)):
            return False
        if wait:
            # Wait with no other lock held: a handler's transaction may lock a row for long.
            session.run(self.using, lambda cursor: removal.is_done(cursor, self.group, self.topic, wait=True))
        return wait

    def _piece(self, *, wait: bool) -> bool:
        def work(cursor: CursorWrapper) -> removal.Reached | None:
            if not removal.lock(cursor, self.group, self.topic, wait=wait):
                return None
            return removal.piece(cursor, self.group, self.topic, self._reached)

        reached = session.run(self.using, work)
        self._reached = reached or self._reached
        return reached is not None

    def _end(self, cursor: CursorWrapper, *, wait: bool) -> bool:
        """Delete the mark and let the group begin, if no rows are left. Return whether the mark is known to be gone."""
        if wait:
            offsets.lock_topic(cursor, self.topic)
        elif garbage.lock_topic_if_due(cursor, self.topic, 0) is None:
            return False
        if not removal.lock(cursor, self.group, self.topic, wait=wait):
            return wait
        if not removal.is_done(cursor, self.group, self.topic):
            return False
        if not offsets.end_reset(cursor, self.group, self.topic, wait=wait):
            return False
        removal.forget(cursor, self.group, self.topic)
        return True
