"""Settling: find the offset at or below which no transaction can still commit a message.

AUTO_INCREMENT hands out an offset when a row is inserted, not when it commits. See store/gates.py and
docs/explanation/protocol.md.
"""

from __future__ import annotations

from functools import partial

from ..store import gates, log, offsets
from ..store.connection import session
from ..store.log import MessageIdentity


class Settler:
    """Finds the settled offset of one topic, one step per call, and shares it with all workers.

    ``shared_settled``: the settled offset in the topic's row. It moves back only after a restore (``was_restored``).
    ``is_truncated``: the log has lost an unsettled offset that the caller has read: by a restore, or by deletion.
    """

    def __init__(self, using: str, topic: str) -> None:
        self.using, self.topic = using, topic
        self.settled = 0
        self.was_restored = self.is_truncated = False
        self.shared_settled = 0
        self._noted = MessageIdentity(0)
        self._busy: set[str] = set()
        self._unshared: MessageIdentity | None = None

    @property
    def pending(self) -> bool:
        """True if some slots were held at the last check, or if the topic's row is still to be updated."""
        return bool(self._busy) or self._unshared is not None

    def advance(self, seen: int = 0) -> int:
        """Continue the round, or begin one at the newest committed offset. Return the settled offset.

        ``seen``: the highest offset that the caller has read; it is used for ``is_truncated``. Garbage collection does
        not cause ``is_truncated``, because it deletes only settled messages.

        An uncommitted offset below a committed one was handed out earlier, and its publisher has held a slot of the
        gate since before that. A round notes the newest committed offset. When each slot has been free once *after*
        that, every offset at or below it is committed or will never be committed. Never waits for a lock.
        """
        if session.in_transaction(self.using):
            # Locks on the slots would last until the end of the caller's transaction, and block publishers.
            self.note_shared(offsets.settled(self.using, self.topic))
            return self.settled
        if not self._busy:
            self._noted = log.newest_mark(self.using, self.topic)
            # Read the row second: it then includes what others settled and deleted since the first read.
            self.note_shared(offsets.settled(self.using, self.topic))
            self.is_truncated = self.is_truncated or max(self._noted.offset, self.shared_settled) < seen
            if self._noted.offset <= self.settled:
                self._share()
                return self.settled
            self._busy = gates.slots(gates.gate_of(self.topic))
        self._busy -= session.run(self.using, partial(gates.free_slots, candidates=self._busy))
        if not self._busy and self._noted.offset > self.settled:
            self.settled, self._unshared = self._noted.offset, self._noted
            self._share()
        return self.settled

    def note_shared(self, known: int) -> None:
        """Note the settled offset ``known`` of the topic's row. It moves back only after a restore of the database."""
        if known < self.shared_settled:
            self.was_restored = True
            self._forget()
        self.shared_settled = known
        self.settled = max(self.settled, known)

    def start_over(self) -> None:
        """Forget everything, and continue from the settled offset in the topic's row."""
        self._forget()
        self.note_shared(offsets.settled(self.using, self.topic))
        self.was_restored = self.is_truncated = False

    def _forget(self) -> None:
        self.settled = self.shared_settled = 0
        self._busy.clear()
        self._unshared = None

    def _share(self) -> None:
        if self._unshared is None:
            return
        offset = self._unshared.offset
        known = offsets.store_settled(self.using, self.topic, self._unshared)
        if known is None:
            return
        self._unshared = None
        if known < offset:
            # The noted message is gone: it was deleted, or the log was restored. Go on from the stored offset.
            self.settled = 0
        self.note_shared(known)
