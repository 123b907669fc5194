"""Boxes that nobody waits at any more: their requesters died, or their answers came at the last moment."""

from __future__ import annotations

from django.db.backends.utils import CursorWrapper

from ..policy import names
from ..store import garbage, replies, session

PAGE, PAGES = 500, 5
LINGER_MS = 60_000
"""After its deadline a requester may still be on its way to the box, for the answer that came just in time."""


class Leftovers:
    """One process's walk through the boxes of a topic."""

    def __init__(self, using: str, topic: str) -> None:
        self.using, self.topic = using, names.replies_topic(topic)
        self._above = 0

    def sweep_all(self) -> None:
        """Some pages, while there is much to delete: whoever calls has other things to do, too."""
        for _ in range(PAGES):
            if self.sweep() < PAGE // 2:
                return

    def sweep(self) -> int:
        """Look at the next page of boxes, and delete what is left over: how many. Waits for nobody."""
        found = replies.page(self.using, self.topic, self._above, LINGER_MS, PAGE)
        self._above = found[-1][0] if len(found) == PAGE else 0
        expired = [offset for offset, is_expired in found if is_expired]

        def work(cursor: CursorWrapper) -> int:
            doomed = replies.lock_expired(cursor, expired, LINGER_MS)
            if doomed:
                garbage.delete(cursor, self.topic, (), [("", offset) for offset in doomed])
            return len(doomed)

        return session.run(self.using, work) if expired else 0
