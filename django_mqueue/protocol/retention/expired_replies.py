"""Cleanup of expired reply boxes: the requester has died, or the reply was stored at the last moment."""

from __future__ import annotations

from django.db.backends.utils import CursorWrapper

from ...policy import names
from ...store import garbage, replies
from ...store.connection import session

PAGE, PAGES = 500, 5
LINGER_MS = 60_000
"""Milliseconds to keep a box after its deadline: the requester may still fetch a reply that was just in time."""


class ExpiredReplies:
    """Deletes the expired reply boxes of one topic, page by page, for one process."""

    def __init__(self, using: str, topic: str) -> None:
        self.using, self.topic = using, names.replies_topic(topic)
        self._above = 0

    def sweep_all(self) -> None:
        """Sweep up to ``PAGES`` pages, while at least half of a page is expired. The caller has other work to do."""
        for _ in range(PAGES):
            if self.sweep() < PAGE // 2:
                return

    def sweep(self) -> int:
        """Delete the expired boxes of the next page, except locked ones. Return the number of deleted boxes."""
        found = replies.page(self.using, self.topic, self._above, LINGER_MS, PAGE)
        self._above = found[-1][0] if len(found) == PAGE else 0
        expired = [offset for offset, is_expired in found if is_expired]

        def work(cursor: CursorWrapper) -> int:
            doomed = replies.lock_expired(cursor, expired, LINGER_MS)
            if doomed:
                garbage.delete(cursor, self.topic, (), [("", offset) for offset in doomed])
            return len(doomed)

        return session.run(self.using, work) if expired else 0
