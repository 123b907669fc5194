"""What a worker remembers of a partition that it owns. Memory only: every decision is checked by SQL."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from dataclasses import dataclass, field

from ..store.state import Ticket

READ_AHEAD = 50
"""Undelivered messages of a partition that are kept in mind; the log is read again when they are used up."""


@dataclass(frozen=True)
class Suspect:
    """A delivery left unanswered: its worker died or was too slow. ``alone``: it ran by itself then."""

    ticket: Ticket
    alone: bool
    failures: int


@dataclass
class Partition:
    """One leased partition.

    ``fresh``: undelivered offsets, rising; ``read_to``: the log was read up to there, and ``more`` tells whether
    there was more; ``ahead``: what was read so and is still to come as news; nothing above ``top`` is done.
    ``waiting``: (due, offset) of messages put back, as a heap; with ``waiting_more`` there are more in the table,
    none of them due before ``horizon``. ``timer``: when this partition will be looked at again.
    ``uncounted``: by offset, how many attempts were not counted, because the server ended their transaction.
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
    suspects: list[Suspect] = field(default_factory=list)
    in_flight: set[int] = field(default_factory=set)
    uncounted: dict[int, int] = field(default_factory=dict)
    dirty: bool = False
    leaving: bool = False
    idle_since: float = 0.0

    def arrived(self, offset: int) -> bool:
        """Take note of a message in the log; whether it can be delivered from memory now."""
        if offset in self.ahead:
            self.ahead.discard(offset)
            return False
        if offset > self.read_to:
            if self.more:
                return False
            if offset <= self.top and self._is_known(offset):
                # The partition was read anew: what was delivered before that is told as news once more.
                self.read_to = offset
                return False
            if len(self.fresh) >= READ_AHEAD:
                self.more = True
                return False
            self.read_to = offset
            self.fresh.append(offset)
            return True
        return self.late(offset)

    def late(self, offset: int) -> bool:
        """A message at or below what was read: it committed later. Known ones are ignored."""
        if offset <= self.watermark or offset in self.fresh or self._is_known(offset):
            return False
        if not self.fresh or offset > self.fresh[-1]:
            self.fresh.append(offset)
        else:
            insort(self.fresh, offset)
        return True

    def _is_known(self, offset: int) -> bool:
        """Whether a message was delivered that is not done."""
        return (
            offset in self.in_flight
            or any(offset == known for _, known in self.waiting)
            or any(offset == suspect.ticket.offset for suspect in self.suspects)
        )

    def read(self, offsets: list[int], limit: int, tail: int) -> None:
        """Take what was read from the log above ``read_to``; what lies above ``tail`` will come as news, too."""
        for offset in offsets:
            if offset > self.read_to:
                self.fresh.append(offset)
                self.read_to = offset
                if offset > tail:
                    self.ahead.add(offset)
        self.more = len(offsets) >= limit

    def forget_news(self) -> None:
        """What was read is not what is there now: it is to be read again, from where all was delivered."""
        self.fresh.clear()
        self.read_to, self.more = self.scanned, True

    def wait(self, offset: int, due: int) -> None:
        """Remember a message that was put back; beyond the horizon the table does, and is read again in time."""
        if self.waiting_more and self.horizon is not None and due > self.horizon:
            return
        heapq.heappush(self.waiting, (due, offset))

    def waits(self, items: list[tuple[int, int]]) -> None:
        """What the table says of messages that wait, as (due, offset): some may have been undelivered until now."""
        self.waiting = sorted(items)
        known = {offset for _, offset in items}
        if not known.isdisjoint(self.fresh):
            self.fresh = deque(offset for offset in self.fresh if offset not in known)

    def pop_due(self, now: int) -> int | None:
        """The longest due message that was put back, if one is due."""
        if self.waiting and self.waiting[0][0] <= now:
            return heapq.heappop(self.waiting)[1]
        return None

    def next_due(self) -> int | None:
        return self.waiting[0][0] if self.waiting else None

    def take(self, room: int, now: int) -> tuple[list[int], list[int]]:
        """Up to ``room`` messages to deliver side by side: (put back and due, fresh)."""
        due: list[int] = []
        while len(due) < room and (offset := self.pop_due(now)) is not None:
            due.append(offset)
        fresh = [self.fresh.popleft() for _ in range(min(room - len(due), len(self.fresh)))]
        return due, fresh

    def take_head(self, now: int) -> tuple[list[int], list[int]]:
        """Strict: the lowest message not done, if it may go: nothing else of the partition is under way."""
        if self.in_flight or self.suspects:
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
        """Whether something here can be delivered now."""
        if strict and self.waiting:
            due, offset = self._head()
            return due <= now or bool(self.fresh and self.fresh[0] < offset)
        return bool(self.fresh or (self.waiting and self.waiting[0][0] <= now))

    def _head(self) -> tuple[int, int]:
        """(due, offset) of the lowest message that was put back."""
        return min(self.waiting, key=lambda item: item[1])

    def is_drained(self) -> bool:
        """Nothing left to do here, as far as this worker knows."""
        return not (
            self.fresh
            or self.more
            or self.waiting
            or self.waiting_more
            or self.suspects
            or self.in_flight
            or self.dirty
        )
