"""The tail of the log: one statement a tick for all topics of a process, and a second look for late commits."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..policy.holes import Holes, gaps
from ..policy.names import key_of
from ..store import log, session
from . import telling
from .collecting import is_kept
from .loading import batches
from .promoting import Promoter, Promotion
from .settling import Settler
from .telling import Outbox

logger = logging.getLogger("django_mqueue")

ROWS = 1000
RANGES = 400
"""Holes in one statement."""
SWEEP_EVERY = 0.25
SETTLE_EVERY = 0.5
SETTLE_AGAIN = 0.1
SETTLE_AT_START = 0.5
SHARE = 0.2
"""Of the time: at most this part goes into second looks."""
AGAIN_AFTER = 30.0
"""Seconds between two times that all is read anew for a new connection where none was lost: some have one for each
poll."""


class Listener(Protocol):
    """Who wants to know what came: (offset, partition, target group) in offset order, or late ones in any.

    ``strict``: it must not hear of a message before one that was committed when that was sent.
    """

    @property
    def strict(self) -> bool: ...

    def arrived(self, rows: Sequence[tuple[int, str, str]]) -> None: ...

    def read_anew(self, position: int) -> None:
        """The tail was opened again, at ``position``: what is remembered of the log may be of another one."""

    def keep_up(self) -> None:
        """Something takes long: do in between what others would miss as a sign of life."""


@dataclass
class Tail:
    """How far a topic has been read, and the offsets below that which have not been seen.

    ``sweep_from``: where the pass over the holes goes on, 0 between passes; ``sweep_settled``: what was settled when it
    began; ``compacted``: other topics' messages have been taken out of the holes in this pass, up to ``compacted_to``.
    ``stale``: what is remembered may be of another log, and is to be read anew; ``anew_at``: not before, if what was
    taken out of the topic looks like that.
    """

    topic: str
    position: int
    settler: Settler
    promoter: Promoter
    holes: Holes = field(default_factory=Holes)
    listeners: list[Listener] = field(default_factory=list)
    sweep_at: float = -math.inf
    sweep_from: int = 0
    sweep_settled: int = 0
    compacted: bool = False
    compacted_to: int = 0
    settle_at: float = -math.inf
    stale: bool = False
    anew_at: float = -math.inf

    def tell(self, rows: Sequence[tuple[int, str, str]]) -> None:
        if rows:
            for listener in list(self.listeners):
                listener.arrived(rows)


class Feed:
    """The tails of all topics that a process consumes. Not for several threads."""

    def __init__(self, using: str, outbox: Outbox | None = None) -> None:
        self.using, self.outbox = using, outbox or Outbox()
        self.tails: dict[str, Tail] = {}
        self._waited: set[str] = set()
        self._connection = session.Watched(using)
        self._anew_at = -math.inf

    def join(self, topic: str, listener: Listener) -> None:
        """Hear of what comes to a topic from now on. The listener reads what was there before by itself."""
        if topic not in self.tails:
            self.tails[topic] = self._open(topic)
        self.tails[topic].listeners.append(listener)

    def leave(self, topic: str, listener: Listener) -> None:
        tail = self.tails.get(topic)
        if tail and listener in tail.listeners:
            tail.listeners.remove(listener)
            if not tail.listeners:
                del self.tails[topic]

    def position(self, topic: str) -> int:
        """How far the topic's tail has been read."""
        return self.tails[topic].position

    def settled(self, topic: str) -> int:
        return self.tails[topic].settler.settled

    def told(self, topic: str) -> int:
        """As much of what is settled as all workers know."""
        return self.tails[topic].settler.told

    def hear_settled(self, topic: str, known: int) -> None:
        """What the topic's row says, for who has read it along with other things."""
        if topic in self.tails:
            self.tails[topic].settler.hear(known)

    def doubt(self, topic: str) -> None:
        """The tables have less than is remembered of them: read all of the topic anew with the next tick."""
        if topic in self.tails:
            self.tails[topic].stale = True

    def _open(self, topic: str) -> Tail:
        """Begin at the newest message; what is not settled below it is one hole."""
        settler, position = Settler(self.using, topic), log.newest(self.using, topic)
        # Nothing settles in a transaction, such as a test's.
        patience = 0 if session.in_transaction(self.using) else SETTLE_AT_START
        deadline, pause = time.monotonic() + patience, threading.Event()
        while settler.advance() < position and time.monotonic() < deadline:
            pause.wait(0.02)
        if not self.tails:
            self._connection.note()
        tail = Tail(topic, position, settler, Promoter(self.using, topic))
        tail.holes.add(settler.settled + 1, position)
        return tail

    def tick(self) -> bool:
        """Read what is new, look again for what was late, put into the log what is due; whether there is more now."""
        if not self.tails:
            return False
        self._read_anew()
        more, due = self._read()
        came = self._promote(due)
        if any(result.promoted for result in came):
            more = self._read()[0] or more
        for tail in list(self.tails.values()):
            self._settle(tail)
            self._sweep(tail)
        return more or any(result.more for result in came)

    def _read_anew(self) -> None:
        """Topics of a database that was set back; and all for a new connection, which may be to another server.

        What came into the log since a set-back may have offsets that were read before. Where others have settled these
        by now, nothing else tells. (No decision rests on it: whatever memory says, watermarks go by the tables.)
        """
        now = time.monotonic()
        is_new = self._connection.is_new() and (now >= self._anew_at or self._connection.was_lost())
        if is_new:
            self._connection.note()
            self._anew_at = now + AGAIN_AFTER
        for tail in list(self.tails.values()):
            tail.stale = tail.stale or is_new or self._has_lost(tail, now)
        for tail in [tail for tail in self.tails.values() if tail.stale]:
            self.keep_up()
            self._open_again(tail)
            tail.stale = False  # Whatever failed before: all is read.

    def _has_lost(self, tail: Tail, now: float) -> bool:
        """Whether the log seems to be an earlier one."""
        settler = tail.settler
        if settler.went_back or (settler.ends_early and not is_kept(tail.topic)):
            logger.warning(
                "topic %s: the log has lost what was read of it. Was the database set back (by a failover to a"
                " server that was behind, or by a backup), or the newest message deleted? All is read anew",
                tail.topic,
            )
            return True
        if settler.ends_early and now >= tail.anew_at:
            # Most likely a dead letter was sent back: that is done with settled ones and others alike.
            tail.anew_at = now + AGAIN_AFTER
            return True
        return False

    def keep_up(self) -> None:
        """While much is read, for one listener or another: others would take all of this process for dead."""
        for tail in self.tails.values():
            for listener in tail.listeners:
                listener.keep_up()

    def _open_again(self, tail: Tail) -> None:
        # What is settled comes first: it is to be committed before the listeners read, for no hole tells of it.
        tail.settler.start_over()
        settled = tail.settler.settled
        tail.position = log.newest(self.using, tail.topic)
        for listener in list(tail.listeners):
            listener.read_anew(tail.position)
        tail.promoter, tail.holes = Promoter(self.using, tail.topic), Holes()
        tail.holes.add(settled + 1, tail.position)
        tail.sweep_at = tail.settle_at = -math.inf
        tail.sweep_from = tail.compacted_to = 0
        tail.compacted = False

    def _promote(self, due: Sequence[str]) -> list[Promotion]:
        """One topic after the other, but one alone that has to wait: leases are to be renewed in between.

        The topics that had to wait come last the next time.
        """
        came = []
        for topic in sorted(due, key=lambda topic: topic in self._waited):
            result = self.tails[topic].promoter.promote()
            came.append(result)
            for row, reason in result.dropped.items():
                telling.dropped(
                    self.outbox, topic, using=self.using, id=row.id, key=key_of(row.partition),
                    group=row.group or None, reason=reason,
                )  # fmt: skip
            self._waited.discard(topic)
            if result.waited:
                self._waited.add(topic)
                break
        return came

    def _read(self) -> tuple[bool, list[str]]:
        """Tell what is new: whether there was more than fits, and the topics where scheduled messages are due."""
        positions = [(tail.topic, tail.position) for tail in self.tails.values()]
        rows = [row for some in batches(positions) for row in log.tails(self.using, some, ROWS)]
        by_topic: dict[str, list[tuple[int, str, str]]] = {}
        due = []
        for topic, offset, partition, group in rows:
            if offset == log.DUE:
                due.append(topic)
            else:
                by_topic.setdefault(topic, []).append((int(offset), partition, group))
        for topic, news in by_topic.items():
            tail = self.tails[topic]
            if any(listener.strict for listener in tail.listeners):
                self._catch_up(tail)
            for first, last in gaps(tail.position, [offset for offset, _, _ in news]):
                tail.holes.add(first, last)
            tail.position = news[-1][0]
            tail.tell(news)
        return any(len(news) == ROWS for news in by_topic.values()), due

    def settle(self, topic: str) -> int:
        """Try to settle now, whatever the cadence; the settled offset."""
        return self.tails[topic].settler.advance()

    def _settle(self, tail: Tail) -> None:
        now = time.monotonic()
        if now >= tail.settle_at and (tail.settler.pending or tail.settler.settled < tail.position):
            tail.settler.advance(tail.position)
            tail.settle_at = now + (SETTLE_AGAIN if tail.settler.pending else SETTLE_EVERY)

    def _sweep(self, tail: Tail) -> None:
        """Look at the holes again, a part at a time. What a pass that began later did not find will not come."""
        started = time.monotonic()
        if not tail.holes or started < tail.sweep_at:
            return
        if not tail.sweep_from:
            tail.sweep_settled = tail.settler.settled
        if len(tail.holes) > RANGES and not tail.compacted:
            self._compact(tail)
        else:
            self._look(tail)
        now = time.monotonic()
        pause = (now - started) / SHARE
        tail.sweep_at = now + (pause if tail.sweep_from else max(SWEEP_EVERY, pause))

    def _catch_up(self, tail: Tail) -> None:
        """Before news is told in strict order: what is in the holes by now may have been committed before it came."""
        while len(tail.holes) > RANGES and tail.compacted_to < tail.position:
            self._compact(tail)
        start = 0
        while ranges := tail.holes.some(start, RANGES):
            rows = log.within(self.using, tail.topic, ranges, ROWS)
            self._take(tail, [(int(offset), partition, group) for offset, partition, group in rows])
            if len(rows) < ROWS and len(ranges) < RANGES:
                return
            start = int(rows[-1][0]) + 1 if len(rows) == ROWS else ranges[-1][1] + 1

    def _look(self, tail: Tail) -> None:
        """One part of a pass: up to ``RANGES`` holes, up to ``ROWS`` rows."""
        ranges = tail.holes.some(tail.sweep_from, RANGES)
        rows = log.within(self.using, tail.topic, ranges, ROWS) if ranges else []
        self._take(tail, [(int(offset), partition, group) for offset, partition, group in rows])
        if len(rows) == ROWS:
            tail.sweep_from = int(rows[-1][0]) + 1
        elif len(ranges) == RANGES:
            tail.sweep_from = ranges[-1][1] + 1
        else:
            tail.holes.drop_settled(tail.sweep_settled)
            tail.sweep_from, tail.compacted = 0, False

    def _compact(self, tail: Tail) -> None:
        """Many holes are other topics' messages: what is committed there is no hole. Each row is read once."""
        start = max(tail.compacted_to + 1, tail.holes.ranges[0][0])
        rows = log.all_topics(self.using, start, tail.position, ROWS)
        self._take(
            tail,
            [
                (int(offset), partition, group)
                for offset, topic, partition, group in rows
                if topic == tail.topic
            ],
        )
        tail.holes.take(int(row[0]) for row in rows)
        tail.compacted_to = int(rows[-1][0]) if len(rows) == ROWS else tail.position
        tail.compacted = len(rows) < ROWS
        tail.sweep_from = 1

    def _take(self, tail: Tail, rows: list[tuple[int, str, str]]) -> None:
        late = tail.holes.take(offset for offset, _, _ in rows)
        tail.tell([row for row in rows if row[0] in late])
