"""The state of one leased partition in a worker's memory. SQL checks every decision again."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from dataclasses import dataclass, field

from ..store.delivery_state import Receipt

READ_AHEAD = 50
"""Number of undelivered messages of a partition to keep in memory. The log is read again when they are used up."""
READ_MAX = 1000
"""Number of undelivered messages that one refill shares among its partitions. Each gets ``READ_AHEAD`` at least."""


@dataclass(frozen=True)
class QuarantinedDelivery:
    """A quarantined delivery: its worker died or was too slow. ``alone``: it ran alone at that time."""

    receipt: Receipt
    alone: bool
    failures: int


@dataclass
class Partition:
    """One leased partition.

    - ``watermark``: all messages up to this offset are done. ``scanned``: all up to this one were delivered.
    - ``fresh``: the offsets of undelivered messages, ascending.
    - ``read_to``: the log was read up to this offset. ``more``: it may hold more above.
    - ``ahead``: offsets that were read from the log before the tailer reported them.
    - ``top``: no message above this offset was done when the partition was read.
    - ``waiting``: a heap of (due, offset), one for each retry. ``waiting_more``: the table may hold more. ``horizon``:
      memory leaves out retries that are due later.
    - ``timer``: the time when the partition becomes ready.
    - ``uncounted``: by offset, the attempts that were not counted, because the server ended their transaction.
    - ``pause``: milliseconds without delivery after the end of each message. ``free_at``: the end of the pause.
      ``retried``: the last delivery was a retry.
    - ``dirty``: the watermark may move. ``leaving``: the lease will be released to another subscriber.
    """

    name: str
    watermark: int
    scanned: int
    read_to: int
    top: int = 0
    more: bool = True
    fresh: deque[int] = field(default_factory=deque)
    ahead: set[int] = field(default_factory=set)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    waiting_more: bool = False
    horizon: int | None = None
    timer: int | None = None
    quarantined: list[QuarantinedDelivery] = field(default_factory=list)
    in_flight: set[int] = field(default_factory=set)
    uncounted: dict[int, int] = field(default_factory=dict)
    dirty: bool = False
    leaving: bool = False
    idle_since: float = 0.0
    pause: int = 0
    free_at: int = 0
    retried: bool = False

    def ended(self, offset: int, now: int) -> None:
        """Note that a delivery is no longer in flight."""
        self.in_flight.discard(offset)
        if self.pause:
            self.free_at = now + self.pause

    def arrived(self, offset: int) -> bool:
        """Add a message that the tailer reports. Return whether it can be delivered from memory now."""
        if offset in self.ahead:
            self.ahead.discard(offset)
            return False
        if offset > self.read_to:
            if self.more:
                return False
            if offset <= self.top and self._is_known(offset):
                # The partition was read again, and the tailer reports a message that was delivered before.
                self.read_to = offset
                return False
            if len(self.fresh) >= READ_AHEAD:
                self.more = True
                return False
            self.read_to = offset
            self.fresh.append(offset)
            return True
        return self.add_late(offset)

    def add_late(self, offset: int) -> bool:
        """Add a message at or below ``read_to``, which committed late. Return False if it is known."""
        if offset <= self.watermark or offset in self.fresh or self._is_known(offset):
            return False
        if not self.fresh or offset > self.fresh[-1]:
            self.fresh.append(offset)
        else:
            insort(self.fresh, offset)
        return True

    def _is_known(self, offset: int) -> bool:
        """Return whether the message was delivered and is not done."""
        return (
            offset in self.in_flight
            or any(offset == known for _, known in self.waiting)
            or any(offset == one.receipt.offset for one in self.quarantined)
        )

    def add_read(self, offsets: list[int], limit: int, tail: int) -> None:
        """Add offsets from a read of at most ``limit`` rows. The tailer will report those above ``tail`` again."""
        for offset in offsets:
            if offset > self.read_to:
                self.fresh.append(offset)
                self.read_to = offset
                if offset > tail:
                    self.ahead.add(offset)
        self.more = len(offsets) >= limit

    def add_retry(self, offset: int, due: int) -> None:
        """Add a retry, unless it is due after ``horizon``: then it will be read from the table."""
        if self.waiting_more and self.horizon is not None and due > self.horizon:
            return
        heapq.heappush(self.waiting, (due, offset))

    def replace_retries(self, items: list[tuple[int, int]]) -> None:
        """Replace the waiting retries by (due, offset) rows of the table, and remove them from ``fresh``."""
        self.waiting = sorted(items)
        known = {offset for _, offset in items}
        if not known.isdisjoint(self.fresh):
            self.fresh = deque(offset for offset in self.fresh if offset not in known)

    def next_due(self, *, strict: bool) -> int | None:
        """Return when the next retry is due. In strict order, only the lowest message can be the next."""
        if not self.waiting:
            return None
        due, _ = self._head() if strict else self.waiting[0]
        return due

    def take(self, room: int, now: int) -> tuple[list[int], list[int]]:
        """Remove up to ``room`` messages and return their offsets: (due retries, undelivered messages).

        With ``pause``, retries and undelivered messages alternate. Otherwise a job that is postponed after each pause
        would stop all others, even the one that it waits for.
        """
        due: list[int] = []
        yields = self.pause and self.retried and self.fresh
        while len(due) < room and self.waiting and self.waiting[0][0] <= now and not yields:
            due.append(heapq.heappop(self.waiting)[1])
        fresh = [self.fresh.popleft() for _ in range(min(room - len(due), len(self.fresh)))]
        if due or fresh:
            self.retried = bool(due)
        return due, fresh

    def take_head(self, now: int) -> tuple[list[int], list[int]]:
        """Remove the lowest open message, for strict order, if it is due and none is in flight."""
        if self.in_flight or self.quarantined:
            return [], []
        head = self._head() if self.waiting else None
        if head and (not self.fresh or head[1] < self.fresh[0]):
            if head[0] > now:
                return [], []
            self.waiting.remove(head)
            heapq.heapify(self.waiting)
            return [head[1]], []
        return [], [self.fresh.popleft()] if self.fresh else []

    def has_due(self, now: int, *, strict: bool) -> bool:
        """Return whether a message of the partition can be delivered now."""
        if self.free_at > now:
            return False
        if strict and self.waiting:
            due, offset = self._head()
            return due <= now or bool(self.fresh and self.fresh[0] < offset)
        return bool(self.fresh or (self.waiting and self.waiting[0][0] <= now))

    def _head(self) -> tuple[int, int]:
        """Return (due, offset) of the retry with the lowest offset."""
        return min(self.waiting, key=lambda item: item[1])

    def is_drained(self) -> bool:
        """Return whether the partition has no work left, judged by memory alone."""
        return not (
            self.fresh
            or self.more
            or self.waiting
            or self.waiting_more
            or self.quarantined
            or self.in_flight
            or self.dirty
        )
