"""Delete the reply boxes of requests whose deadline has passed and whose requester did not fetch the reply."""

from __future__ import annotations

from django.db.backends.utils import CursorWrapper

from ...policy.names import replies_topic
from ...store import garbage, replies
from ...store.connection import session

BOXES, PAGES = 500, 5
"""Reply boxes of a page, and the pages that are read at once."""
LINGER_MS = 60_000
"""Milliseconds to keep a box after its deadline: the requester may still fetch a reply that was just in time."""


class ExpiredReplies:
    """Deletes the expired reply boxes of one topic, page by page, for one process."""

    def __init__(self, using: str, topic: str) -> None:
        self.using, self.topic = using, replies_topic(topic)
        self._above = 0

    def delete_pages(self) -> None:
        """Delete the expired boxes of up to ``PAGES`` pages. Stop after a page of which less than half is deleted."""
        for _ in range(PAGES):
            if self.delete_page() < BOXES // 2:
                return

    def delete_page(self) -> int:
        """Delete the expired boxes of the next page, except locked ones. Return the number of deleted boxes."""
        found = replies.page(self.using, self.topic, self._above, LINGER_MS, BOXES)
        self._above = found[-1][0] if len(found) == BOXES else 0
        expired = [offset for offset, is_expired in found if is_expired]

        def work(cursor: CursorWrapper) -> int:
            deletable = replies.lock_expired(cursor, expired, LINGER_MS)
            if deletable:
                garbage.delete(cursor, self.topic, (), deletable)
            return len(deletable)

        return session.run(self.using, work) if expired else 0
