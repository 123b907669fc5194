"""The tailer: it reads the new rows of all topics of a process, and re-reads holes for late commits.

A hole is a range of offsets below the tail that this process has not seen. One statement per tick reads up to 200
topics.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..policy.batching import batches
from ..policy.missing_offsets import MissingOffsets
from ..policy.names import key_of
from ..signals import EventQueue, EventSink
from ..store import log
from ..store.connection import session
from . import events
from .promoting import Promoter, Promotion
from .retention.garbage_collection import is_kept
from .settling import Settler
from .waking import commits

logger = logging.getLogger("django_mqueue")

ROWS = 1000
RANGES = 400
"""Maximum number of holes in one statement."""
SWEEP_EVERY = 0.25
"""Minimum seconds between two passes over the holes of a topic."""
SETTLE_EVERY, SETTLE_AGAIN = 0.5, 0.1
"""Seconds until settling is tried again, and the same while slots of the gate are held."""
SETTLE_AT_START = 0.5
"""Maximum seconds for which a new tail waits until its newest message is settled."""
PROMOTE_AGAIN = 0.1
"""Seconds until the next try to promote messages that another transaction has locked."""
TIME_FRACTION_MAX = 0.2
"""Maximum fraction of the time that goes into re-reading holes."""
MIN_RELOAD_INTERVAL = 30.0
"""Minimum seconds between two re-reads that may be unnecessary.

A new connection does not prove a lost one: some callers open one for each poll. In a topic without garbage collection
(``is_kept``), missing rows do not prove a restore: a redrive deletes dead letters.
"""


class Listener(Protocol):
    """Receives (offset, partition, target group) for each new log row.

    Rows arrive in offset order, except those that commit late. ``strict``: if message A was committed before message B
    was published, the listener must receive A before B.
    """

    @property
    def strict(self) -> bool: ...

    def arrived(self, rows: Sequence[tuple[int, str, str]]) -> None: ...

    def reload(self, position: int) -> None:
        """Read all partitions again: the database may have been restored. The tail restarts at ``position``."""

    def send_heartbeat_if_due(self) -> None:
        """Send a heartbeat and renew leases if due, because a read takes long."""


@dataclass
class Tail:
    """The offset up to which a topic was read, and the holes below it.

    ``sweep_from``: the offset where the current pass over the holes continues; 0 between passes. ``sweep_settled``: a
    settled offset from before that pass. ``sweep_pause``: do not read holes before this monotonic time, even after a
    wake-up. ``compacted``: this pass has removed other topics' offsets from the holes. ``compacted_to``: the offset up
    to which they were removed. ``due_at``: the monotonic time when the next scheduled message is due.
    ``reload_needed``: the topic must be read again, because the database may have been restored. ``reload_at``: do not
    read an ``is_kept`` topic again before this monotonic time.
    """

    topic: str
    position: int
    settler: Settler
    promoter: Promoter
    holes: MissingOffsets = field(default_factory=MissingOffsets)
    listeners: list[Listener] = field(default_factory=list)
    sweep_at: float = -math.inf
    sweep_from: int = 0
    sweep_settled: int = 0
    compacted: bool = False
    compacted_to: int = 0
    sweep_pause: float = -math.inf
    settle_at: float = -math.inf
    due_at: float = math.inf
    reload_needed: bool = False
    reload_at: float = -math.inf

    def notify(self, rows: Sequence[tuple[int, str, str]]) -> None:
        if rows:
            for listener in list(self.listeners):
                listener.arrived(rows)


class Tailer:
    """The tails of all topics that a process consumes. Not thread-safe."""

    def __init__(self, using: str, sink: EventSink | None = None) -> None:
        self.using, self.events = using, sink or EventQueue()
        self.tails: dict[str, Tail] = {}
        self.arrivals = 0
        """The number of new rows that ``tick`` has found, without the messages that it has promoted."""
        self.locked = 0
        """The number of topics whose promotion in the last ``tick`` moved and dropped no message."""
        self._waited: set[str] = set()
        self._connection = session.Watched(using)
        self._reload_at = -math.inf

    def join(self, topic: str, listener: Listener) -> int:
        """Pass new rows of a topic to the listener from now on. It reads the rows up to the returned offset itself."""
        if topic not in self.tails:
            self.tails[topic] = self._open(topic)
        self.tails[topic].listeners.append(listener)
        return self.tails[topic].position

    def leave(self, topic: str, listener: Listener) -> None:
        tail = self.tails.get(topic)
        if tail and listener in tail.listeners:
            tail.listeners.remove(listener)
            if not tail.listeners:
                del self.tails[topic]

    def shared_settled(self, topic: str) -> int:
        """Return the settled offset as the topic's row has it: the value that all workers share."""
        return self.tails[topic].settler.shared_settled

    def update_shared_settled(self, topic: str, known: int) -> None:
        """Note the settled offset ``known``, which the caller has read from the topic's row."""
        if topic in self.tails:
            self.tails[topic].settler.note_shared(known)

    def note_restored(self, topic: str, evidence: str) -> None:
        """Note that the database was restored to an earlier state. The next tick reads the whole topic again."""
        tail = self.tails.get(topic)
        if tail and not tail.reload_needed:
            tail.reload_needed = True
            logger.warning(
                "the log lost messages that this worker has read: topic %s: %s. The database was restored to an earlier"
                " state (from a backup or an older replica), or the newest message was deleted. The worker reads the"
                " whole log again",
                topic, evidence,
            )  # fmt: skip

    def _open(self, topic: str) -> Tail:
        """Start a tail at the newest message. The unsettled offsets below it are one hole."""
        settler, position = Settler(self.using, topic), log.newest(self.using, topic)
        # Nothing can settle inside a transaction, such as a test's, so do not wait.
        wait_for = 0 if session.in_transaction(self.using) else SETTLE_AT_START
        deadline = time.monotonic() + wait_for
        while settler.advance() < position and time.monotonic() < deadline:
            time.sleep(0.02)
        if not self.tails:
            self._connection.note()
        tail = Tail(topic, position, settler, Promoter(self.using, topic))
        tail.holes.add(settler.settled + 1, position)
        return tail

    def tick(self, *, woken: bool = False) -> bool:
        """Read new rows, promote due messages and re-read holes. Return whether more can be done at once.

        ``woken``: a publisher has committed. If there is no new row, its message may be in a hole.
        """
        if not self.tails:
            return False
        self._reload_if_lost()
        before = self.arrivals
        more, due = self._read()
        arrivals = self.arrivals
        promotions = self._promote(due)
        self.locked = sum(not result.promoted and not result.dropped for result in promotions)
        if any(result.promoted for result in promotions):
            more = self._read()[0] or more
            self.arrivals = arrivals
        for tail in list(self.tails.values()):
            self._settle(tail)
            self._sweep(tail, is_late=woken and arrivals == before)
        return more or any(result.more for result in promotions)

    def due_in(self) -> float:
        """Return the seconds until a promotion, a settling or a sweep is due; infinity if none is planned."""
        due = math.inf
        for tail in self.tails.values():
            due = min(due, tail.due_at, tail.settle_at if self._is_unsettled(tail) else math.inf)
            due = min(due, tail.sweep_at if tail.holes else math.inf)
        return max(due - time.monotonic(), 0)

    def _reload_if_lost(self) -> None:
        """Read topics again after a restore of the database, and all topics on a new connection.

        A new connection may lead to another server, which hands out offsets again. If other workers have settled them
        already, only the new connection reveals the restore.
        """
        now = time.monotonic()
        is_new = self._connection.is_new() and (now >= self._reload_at or self._connection.was_lost())
        if is_new:
            self._connection.note()
            self._reload_at = now + MIN_RELOAD_INTERVAL
        for tail in list(self.tails.values()):
            tail.reload_needed = tail.reload_needed or is_new
            if not tail.reload_needed:
                self._detect_restore(tail, now)
        for tail in [tail for tail in self.tails.values() if tail.reload_needed]:
            self.send_heartbeat_if_due()
            self._open_again(tail)
            tail.reload_needed = False  # Not earlier: if the read fails, the next tick repeats it.

    def _detect_restore(self, tail: Tail, now: float) -> None:
        """Let the topic be read again if the log seems to have lost rows that this tail has read."""
        settler = tail.settler
        if settler.was_restored:
            self.note_restored(tail.topic, "its settled offset has decreased")
        elif settler.is_truncated and not is_kept(tail.topic):
            self.note_restored(tail.topic, "its newest messages are gone")
        elif settler.is_truncated and now >= tail.reload_at:
            # Probably a redriven dead letter: redrive deletes one even if it is not settled.
            tail.reload_at, tail.reload_needed = now + MIN_RELOAD_INTERVAL, True

    def send_heartbeat_if_due(self) -> None:
        """Let listeners renew leases if due. Otherwise others would consider this process dead."""
        for tail in self.tails.values():
            for listener in tail.listeners:
                listener.send_heartbeat_if_due()

    def _open_again(self, tail: Tail) -> None:
        # Read the settled offset before the listeners read the log: holes begin above it, so no message below it may
        # commit later.
        tail.settler.start_over()
        settled = tail.settler.settled
        tail.position = log.newest(self.using, tail.topic)
        for listener in list(tail.listeners):
            listener.reload(tail.position)
        tail.promoter, tail.holes = Promoter(self.using, tail.topic), MissingOffsets()
        tail.holes.add(settled + 1, tail.position)
        tail.sweep_at = tail.settle_at = -math.inf
        tail.sweep_from = tail.sweep_settled = tail.compacted_to = 0
        tail.compacted = False

    def _promote(self, due: Sequence[str]) -> list[Promotion]:
        """Promote due messages by topic. Stop after a lock wait, so that leases are renewed before the next topic."""
        promotions = []
        for topic in sorted(due, key=lambda topic: topic in self._waited):
            result = self.tails[topic].promoter.promote()
            promotions.append(result)
            if result.promoted:
                commits.wake_after_commit(self.using, topic)
            for row, reason in result.dropped.items():
                events.dropped(
                    self.events, topic, using=self.using, id=row.id, key=key_of(row.partition),
                    group=row.group or None, reason=reason,
                )  # fmt: skip
            self._waited.discard(topic)
            if result.waited:
                self._waited.add(topic)
                break
        return promotions

    def _read(self) -> tuple[bool, list[str]]:
        """Pass new rows to the listeners. Return whether a topic has more rows, and the topics with due messages."""
        positions = [(tail.topic, tail.position) for tail in self.tails.values()]
        rows = [row for some in batches(positions) for row in log.tails(self.using, some, ROWS)]
        by_topic: dict[str, list[tuple[int, str, str]]] = {}
        due, now = [], time.monotonic()
        for tail in self.tails.values():
            tail.due_at = math.inf
        for topic, offset, partition, group in rows:
            if offset == log.DUE:
                due_in = int(partition) / 1000
                self.tails[topic].due_at = now + (due_in if due_in > 0 else PROMOTE_AGAIN)
                if due_in <= 0:
                    due.append(topic)
            else:
                by_topic.setdefault(topic, []).append((int(offset), partition, group))
        for topic, new_rows in by_topic.items():
            tail = self.tails[topic]
            if any(listener.strict for listener in tail.listeners):
                self._catch_up(tail)
            for offset, _, _ in new_rows:
                tail.holes.add(tail.position + 1, offset - 1)
                tail.position = offset
            self.arrivals += len(new_rows)
            tail.notify(new_rows)
        return any(len(new_rows) == ROWS for new_rows in by_topic.values()), due

    def settle(self, topic: str) -> int:
        """Try to settle now, even if it is not due. Return the settled offset."""
        return self.tails[topic].settler.advance()

    def _is_unsettled(self, tail: Tail) -> bool:
        return tail.settler.pending or tail.settler.settled < tail.position

    def _settle(self, tail: Tail) -> None:
        now = time.monotonic()
        if now >= tail.settle_at and self._is_unsettled(tail):
            tail.settler.advance(tail.position)
            tail.settle_at = now + (SETTLE_AGAIN if tail.settler.pending else SETTLE_EVERY)

    def _sweep(self, tail: Tail, *, is_late: bool) -> None:
        """Re-read a part of the holes if due. A complete pass removes holes that were settled before it.

        ``is_late``: a message was committed that is perhaps in a hole.
        """
        started = time.monotonic()
        if not tail.holes or started < (tail.sweep_pause if is_late else tail.sweep_at):
            return
        if not tail.sweep_from:
            tail.sweep_settled = tail.settler.settled
        if len(tail.holes) > RANGES and not tail.compacted:
            self._drop_other_topics(tail)
        else:
            tail.sweep_from = self._read_holes(tail, tail.sweep_from)
            if not tail.sweep_from:
                tail.holes.drop_settled(tail.sweep_settled)
                tail.compacted = False
        now = time.monotonic()
        pause = (now - started) / TIME_FRACTION_MAX
        tail.sweep_pause = now + pause
        tail.sweep_at = now + (pause if tail.sweep_from else max(SWEEP_EVERY, pause))

    def _catch_up(self, tail: Tail) -> None:
        """Read all holes before new rows go to a strict listener: rows in holes may have been committed earlier."""
        while len(tail.holes) > RANGES and tail.compacted_to < tail.position:
            self._drop_other_topics(tail)
        start = self._read_holes(tail, 0)
        while start:
            start = self._read_holes(tail, start)

    def _read_holes(self, tail: Tail, start: int) -> int:
        """Read up to ``RANGES`` holes and ``ROWS`` rows. Return the offset where to continue; 0 at the end."""
        ranges = tail.holes.some(start, RANGES)
        rows = log.within(self.using, tail.topic, ranges, ROWS) if ranges else []
        self._take(tail, rows)
        if len(rows) == ROWS:
            return rows[-1][0] + 1
        return ranges[-1][1] + 1 if len(ranges) == RANGES else 0

    def _drop_other_topics(self, tail: Tail) -> None:
        """Remove the committed offsets of other topics from the holes, up to ``ROWS`` at a time. Read each row once."""
        start = max(tail.compacted_to + 1, tail.holes.ranges[0][0])
        rows = log.all_topics(self.using, start, tail.position, ROWS)
        self._take(tail, [row[:3] for row in rows if row[3] == tail.topic])
        tail.holes.take(row[0] for row in rows)
        tail.compacted_to = rows[-1][0] if len(rows) == ROWS else tail.position
        tail.compacted = len(rows) < ROWS
        tail.sweep_from = 1

    def _take(self, tail: Tail, rows: list[tuple[int, str, str]]) -> None:
        late = tail.holes.take(offset for offset, _, _ in rows)
        tail.notify([row for row in rows if row[0] in late])
