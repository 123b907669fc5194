"""Settling: which offsets are decided, so that no transaction can still commit one of them.

AUTO_INCREMENT hands out an offset when a row is inserted, not when it commits. See store/gates.py and
docs/explanation/protocol.md.
"""

from __future__ import annotations

from django.db.backends.utils import CursorWrapper

from ..store import gates, log, offsets, session


class Settler:
    """Finds the settled offset of one topic, a little with each call, and shares it with all workers."""

    def __init__(self, using: str, topic: str) -> None:
        self.using, self.topic = using, topic
        self.settled = 0
        self.told = 0
        """What of it is written down, as far as this one knows: for all others, and for a restart."""
        self._noted = 0
        self._busy: set[str] = set()
        self._untold = False

    @property
    def pending(self) -> bool:
        """Whether there is more to do: some slots were held when last looked at, or others are still to be told."""
        return bool(self._busy) or self._untold

    def advance(self) -> int:
        """Go on with the round, or begin one at the newest committed offset; the settled offset.

        An uncommitted offset below a committed one was handed out earlier, and its publisher holds a slot of
        the gate since before that. So once each slot has been free *after* the newest offset was noted, all
        at or below it is committed or gone. Never waits.
        """
        if session.in_transaction(self.using):
            # The slots' locks would last as long as the caller's transaction, and hold up publishers.
            self._look()
            return self.settled
        if not self._busy:
            self._look()
            self._noted = log.newest(self.using, self.topic)
            if self._noted <= self.settled:
                self._tell()
                return self.settled
            self._busy = gates.slots(gates.gate_of(self.topic))
        wanted = set(self._busy)

        def look(cursor: CursorWrapper) -> set[str]:
            return gates.free_slots(cursor, wanted)

        self._busy -= session.run(self.using, look)
        if not self._busy:
            self.settled = max(self.settled, self._noted)
            self._untold = True
            self._tell()
        return self.settled

    def _look(self) -> None:
        self.told = offsets.settled(self.using, self.topic)
        self.settled = max(self.settled, self.told)

    def _tell(self) -> None:
        if self._untold and offsets.note_settled(self.using, self.topic, self.settled):
            self._untold, self.told = False, self.settled
