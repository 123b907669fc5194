"""Garbage collection: delete settled messages that are past retention and that no registered group still needs."""

from __future__ import annotations

import math
import time

from django.db.backends.utils import CursorWrapper

from ... import conf
from ...policy.names import RESERVED_SUFFIXES, replies_topic
from ...store import garbage, offsets
from ...store.connection import session
from .expired_replies import ExpiredReplies
from .removing import Removal, unfinished

PAGE = 1000
STEP = 0.1
"""Seconds between two pages of a pass, in a worker without other work."""
FRUITLESS_PAGES = 20
"""A pass ends after so many successive pages without a deletion. The next pass continues after them."""


def is_kept(topic: str) -> bool:
    """Return True for topics without garbage collection: dead letters and reserved topics."""
    return topic.endswith((*conf.dead_letter_suffixes(), *RESERVED_SUFFIXES))


class Collector:
    """Collects one topic's garbage for one worker. All workers share the cursor and the time in the topic's row.

    ``deleted``: the number of messages that this collector has deleted.
    """

    def __init__(self, using: str, topic: str) -> None:
        self.using, self.topic, self.deleted = using, topic, 0
        self._next = -math.inf
        self._fruitless = 0
        self._expired_replies = ExpiredReplies(using, topic)
        self._removal: Removal | None = None

    def tick(self) -> None:
        """Collect one page if it is due, and do one step of a removal that another process left unfinished."""
        if self._removal and not self._removal.step():
            self._removal = None
        now = time.monotonic()
        if now < self._next:
            return
        interval = float(conf.get("GC_INTERVAL", self.topic))
        if not self.collect_page(int(interval * 1000)):
            self._next = now + interval
            self._removal = self._removal or unfinished(self.using, self.topic)

    def due_in(self) -> float:
        """Return the seconds until the next page, or until the next step of a removal."""
        return STEP if self._removal else max(self._next - time.monotonic(), STEP)

    def collect_all(self) -> None:
        """Delete the topic's garbage from its first message on, and wait for locks on the topic.

        Raises ``OperationalError`` if the topic stays locked for ten times ``innodb_lock_wait_timeout``.
        """
        session.run(self.using, lambda cursor: garbage.move_cursor(cursor, self.topic, 0, done=False))
        while self.collect_page(all_at_once=True):
            pass

    def collect_page(self, interval_ms: int = 0, *, all_at_once: bool = False) -> bool:
        """Delete one page's garbage. Return whether the pass has more pages. Skip a locked topic, or one not due.

        ``all_at_once``: wait for a locked topic, and end the pass only after the last page.
        """
        if is_kept(self.topic):
            return False
        retention = conf.retention_ms(self.topic)
        has_replies, deletable, fruitless = False, list[tuple[str, int]](), 0

        def work(cursor: CursorWrapper) -> bool:
            nonlocal has_replies, deletable, fruitless
            deletable, fruitless = [], self._fruitless
            if all_at_once:
                offsets.lock_topic(cursor, self.topic)
            locked = garbage.lock_topic_if_due(cursor, self.topic, interval_ms)
            if locked is None:
                return False
            settled, position = locked
            groups = garbage.groups(cursor, self.topic, replies_topic(self.topic))
            has_replies = groups.has_replies
            rows = garbage.page(cursor, self.topic, position, settled, PAGE) if groups.starts else []
            if not rows:
                garbage.move_cursor(cursor, self.topic, 0, done=True)
                return False
            done = self._done(cursor, groups, [(int(o), p, g) for o, p, g in rows])
            asked = {o for _, o in done} | ({int(rows[-1][0])} if all_at_once else set())
            old = set(garbage.old_enough(cursor, sorted(asked), retention)) if asked else set()
            ripe = sorted(o for _, o in done if o in old)
            free = garbage.lock_unlocked(cursor, ripe) if ripe else set()
            deletable = [(p, o) for p, o in done if o in free]
            if deletable:
                garbage.delete(cursor, self.topic, sorted(groups.starts), [o for _, o in deletable])
                garbage.delete_empty_positions(cursor, self.topic, sorted({p for p, _ in deletable}))
            fruitless = 0 if deletable else fruitless + 1
            over = len(old) < len(asked) or len(rows) < PAGE  # Later messages are not past retention either.
            gives_up = fruitless >= FRUITLESS_PAGES and not all_at_once
            garbage.move_cursor(cursor, self.topic, 0 if over else int(rows[-1][0]), done=over or gives_up)
            if gives_up:
                fruitless = 0
            return not (over or gives_up)

        more = session.run(self.using, work)
        self.deleted += len(deletable)
        self._fruitless = fruitless
        if has_replies:
            self._expired_replies.delete_pages()
        return more

    def _done(
        self, cursor: CursorWrapper, groups: garbage.Groups, rows: list[tuple[int, str, str]]
    ) -> list[tuple[str, int]]:
        """Return (partition, offset) of rows at or below the watermarks (or starts) of all groups that need them."""
        marks = {
            (partition, group): offset
            for (partition, group), offset in garbage.watermarks(
                cursor, self.topic, sorted({partition for _, partition, _ in rows})
            ).items()
            if group not in groups.resetting
        }
        starts, done = groups.starts, []
        for offset, partition, target in rows:
            waiting = groups.blocking(target)
            if all(offset <= max(marks.get((partition, group), 0), starts[group]) for group in waiting):
                done.append((partition, offset))
        return done
