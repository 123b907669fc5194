"""Settling: which offsets are decided, so that no transaction can still commit one of them.

AUTO_INCREMENT hands out an offset when a row is inserted, not when it commits. See store/gates.py and
docs/explanation/protocol.md.
"""

from __future__ import annotations

from django.db.backends.utils import CursorWrapper

from ..store import gates, log, offsets, session
from ..store.log import Mark


class Settler:
    """Finds the settled offset of one topic, a little with each call, and shares it with all workers.

    ``told``: as much of it as the topic's row says. Both move back with a database that is set back, as by a failover
    to a server that was behind. For who has more in memory: ``went_back``: that has shown; ``ends_early``: the log ends
    before what was read of it, and that has not been settled: so it is then, or what was read was taken out.
    """

    def __init__(self, using: str, topic: str) -> None:
        self.using, self.topic = using, topic
        self.settled = 0
        self.went_back = self.ends_early = False
        self.told = 0
        self._noted = Mark(0)
        self._busy: set[str] = set()
        self._untold: Mark | None = None

    @property
    def pending(self) -> bool:
        """Whether there is more to do: some slots were held when last looked at, or others are still to be told."""
        return bool(self._busy) or self._untold is not None

    def advance(self, seen: int = 0) -> int:
        """Go on with the round, or begin one at the newest committed offset; the settled offset.

        ``seen``: an offset that the caller has read. What is deleted in its time was settled before.

        An uncommitted offset below a committed one was handed out earlier, and its publisher holds a slot of
        the gate since before that. So once each slot has been free *after* the newest offset was noted, all
        at or below it is committed or gone. Never waits.
        """
        if session.in_transaction(self.using):
            # The slots' locks would last as long as the caller's transaction, and hold up publishers.
            self.hear(offsets.settled(self.using, self.topic))
            return self.settled
        if not self._busy:
            self._noted = log.newest_mark(self.using, self.topic)
            # The row comes second: it has what was settled, and then deleted, while this process stood still here.
            self.hear(offsets.settled(self.using, self.topic))
            self.ends_early = self.ends_early or max(self._noted.offset, self.told) < seen
            if self._noted.offset <= self.settled:
                self._tell()
                return self.settled
            self._busy = gates.slots(gates.gate_of(self.topic))
        wanted = set(self._busy)

        def look(cursor: CursorWrapper) -> set[str]:
            return gates.free_slots(cursor, wanted)

        self._busy -= session.run(self.using, look)
        if not self._busy and self._noted.offset > self.settled:
            self.settled, self._untold = self._noted.offset, self._noted
            self._tell()
        return self.settled

    def hear(self, known: int) -> None:
        """Take note of what the topic's row says. It never moves back, but with the database."""
        if known < self.told:
            self.went_back = True
            self._forget()
        self.told = known
        self.settled = max(self.settled, known)

    def start_over(self) -> None:
        """Forget all, and go on with what the topic's row says."""
        self._forget()
        self.hear(offsets.settled(self.using, self.topic))
        self.went_back = self.ends_early = False

    def _forget(self) -> None:
        self.settled = self.told = 0
        self._busy.clear()
        self._untold = None

    def _tell(self) -> None:
        if self._untold is None:
            return
        offset = self._untold.offset
        known = offsets.note_settled(self.using, self.topic, self._untold)
        if known is None:
            return
        self._untold = None
        if known < offset:
            # That message is there no more: deleted, or the log is an earlier one, of which nothing was found out.
            self.settled = 0
        self.hear(known)
