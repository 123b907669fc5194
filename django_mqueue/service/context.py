"""What the parts of one subscriber share: who it is, its options, its partitions, the database's time."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..store.leases import Holder
from ..store.state import Ticket
from . import telling
from .partition import Partition
from .telling import Outbox

if TYPE_CHECKING:
    from .delivery import Delivery


class Clock:
    """The database's time, as last told and carried on by this machine's monotonic clock: a hint only.

    SQL compares again; a wrong guess costs a statement, never a promise.
    """

    def __init__(self) -> None:
        self._offset = 0.0

    def set(self, now_ms: int) -> None:
        self._offset = now_ms - time.monotonic() * 1000

    def now(self) -> int:
        return int(time.monotonic() * 1000 + self._offset)


@dataclass(frozen=True)
class Options:
    """How a subscriber consumes; times in milliseconds.

    ``batch``: what is delivered of a partition at once goes to one handler, and the next when that was answered.
    ``eager``: memory follows each answer, not the commit: for tests, which are one transaction that never commits.
    """

    using: str
    batch_size: int = 10
    strict: bool = False
    max_attempts: int = 3
    visible_ms: int = 60_000
    eager: bool = False
    batch: bool = False


@dataclass
class Context:
    """One subscriber's working memory.

    ``ready``: partitions that may have something deliverable now, in turn; ``thin``: those whose undelivered
    messages must be read from the log; ``stale_waiting``: those whose retries must be read again;
    ``dirty``: those whose watermark may move now, ``unsettled``: once more is settled; ``suspected``: those with
    deliveries that somebody left unanswered; ``timers``: when to look at a partition again. ``flying``: this
    subscriber's own unanswered deliveries by offset. ``tail``: how far the topic's tail has been read. ``doubt``: a
    lease seems to be lost, look soon. ``paused``: nothing is delivered, also because the group is ``resetting``.
    ``changed``: of the registration, when it was last looked at. ``outbox``: what receivers of signals are to hear.
    ``unconfirmed``: what to note of answers, if they are committed.
    """

    me: Holder
    options: Options
    life: int = 0
    start: int = 0
    tail: int = 0
    paused: bool = False
    resetting: bool = False
    changed: int = 0
    doubt: bool = False
    clock: Clock = field(default_factory=Clock)
    lock: threading.RLock = field(default_factory=threading.RLock)
    outbox: Outbox = field(default_factory=Outbox)
    partitions: dict[str, Partition] = field(default_factory=dict)
    ready: dict[str, None] = field(default_factory=dict)
    thin: dict[str, None] = field(default_factory=dict)
    stale_waiting: dict[str, None] = field(default_factory=dict)
    timers: list[tuple[int, str]] = field(default_factory=list)
    dirty: dict[str, None] = field(default_factory=dict)
    unsettled: dict[str, None] = field(default_factory=dict)
    suspected: dict[str, None] = field(default_factory=dict)
    flying: dict[int, Delivery] = field(default_factory=dict)
    unconfirmed: dict[Ticket, Callable[[], object]] = field(default_factory=dict)

    @property
    def using(self) -> str:
        return self.options.using

    @property
    def group(self) -> str:
        return self.me.group

    @property
    def topic(self) -> str:
        return self.me.topic

    def touch(self, partition: Partition) -> None:
        """Something changed: look at this partition at the next claim."""
        self.ready[partition.name] = None
        partition.idle_since = time.monotonic()
        if partition.more and not partition.fresh:
            self.thin[partition.name] = None
        if partition.waiting_more and not partition.waiting:
            self.stale_waiting[partition.name] = None

    def put_back(self, name: str, offset: int, due: int) -> None:
        """Remember that a message waits for its retry."""
        if partition := self.partitions.get(name):
            partition.wait(offset, due)
            self.set_timer(name, due)

    def set_timer(self, name: str, due: int) -> None:
        """Look at the partition then, unless it will be looked at before; that sets the next timer."""
        partition = self.partitions[name]
        if partition.timer is None or due < partition.timer:
            partition.timer = due
            heapq.heappush(self.timers, (due, name))

    def ring(self) -> None:
        """Make those partitions ready whose time has come."""
        now = self.clock.now()
        while self.timers and self.timers[0][0] <= now:
            due, name = heapq.heappop(self.timers)
            partition = self.partitions.get(name)
            if partition and partition.timer == due:
                partition.timer = None
                self.touch(partition)
                if partition.suspects:
                    self.suspected[name] = None

    def mark_dirty(self, name: str) -> None:
        """Something of the partition was finished: its watermark may move."""
        if partition := self.partitions.get(name):
            partition.dirty = True
            self.dirty[name] = None

    def drop(self, names: Iterable[str], reason: str = "lost") -> None:
        """Forget partitions: given away, or lost to another. ``reason`` is told to who listens ('': nothing is)."""
        gone = set(names)
        if reason:
            telling.leases_lost(self, gone & self.partitions.keys(), reason)
        for offset in [o for o, d in self.flying.items() if d.hold.ticket.partition in gone]:
            self.flying.pop(offset).hold.lost = True
        for name in gone:
            self.partitions.pop(name, None)
            for memory in (
                self.ready,
                self.thin,
                self.stale_waiting,
                self.dirty,
                self.unsettled,
                self.suspected,
            ):
                memory.pop(name, None)
