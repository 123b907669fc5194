"""The consumer state of one subscriber: its identity, options, partitions and deliveries in flight. It does no I/O."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..signals import EventQueue, EventSink
from ..store.delivery_state import Receipt
from ..store.leases import Holder
from .delivery import Clock, Delivery, Options
from .partition_state import Partition, QuarantinedDelivery


@dataclass
class ConsumerState:
    """The state of one subscriber in memory.

    These hold names of partitions:

    - ``ready``: a message may be deliverable now. Claims take these partitions in turn.
    - ``needs_log_read``: undelivered messages must be read from the log.
    - ``stale_waiting``: retries must be read again.
    - ``dirty``: the watermark may move now. ``unsettled``: it may move when the settled offset has moved.
    - ``quarantined``: messages are in quarantine.
    - ``timers``: a heap of (time, partition). At this time the partition becomes ready.

    The others:

    - ``registration_generation``, ``changed``: the group's generation, and when its registration last changed.
    - ``start``: the group counts messages at or below this offset as done.
    - ``tail``: the log is read up to this offset.
    - ``paused``: nothing is delivered, because the group is paused or is being reset (``resetting``).
    - ``check_leases``: a lease may be lost, and the next tick checks the leases.
    - ``leaving``: the number of partitions that this subscriber will release to others.
    - ``in_flight``: this subscriber's deliveries in flight, by offset.
    - ``has_priorities``: there is, or was, a partition with a priority other than 0. ``low_priority_credit``:
      the fraction of a message that ``low_priority_share`` carries over to the next claim.
    - ``payload_bytes``: the average size of a payload in the last claim.
    - ``unconfirmed``: a callback for each settled delivery whose commit is not confirmed (see ``note_after_commit``).
    - ``events``: events that will be sent as signals.
    """

    holder: Holder
    options: Options
    registration_generation: int = 0
    start: int = 0
    tail: int = 0
    paused: bool = False
    resetting: bool = False
    changed: int = 0
    check_leases: bool = False
    leaving: int = 0
    clock: Clock = field(default_factory=Clock)
    lock: threading.RLock = field(default_factory=threading.RLock)
    events: EventSink = field(default_factory=EventQueue)
    partitions: dict[str, Partition] = field(default_factory=dict)
    ready: dict[str, None] = field(default_factory=dict)
    needs_log_read: dict[str, None] = field(default_factory=dict)
    stale_waiting: dict[str, None] = field(default_factory=dict)
    timers: list[tuple[int, str]] = field(default_factory=list)
    dirty: dict[str, None] = field(default_factory=dict)
    unsettled: dict[str, None] = field(default_factory=dict)
    quarantined: dict[str, None] = field(default_factory=dict)
    in_flight: dict[int, Delivery] = field(default_factory=dict)
    has_priorities: bool = False
    low_priority_credit: float = 0.0
    payload_bytes: float = 0
    unconfirmed: dict[Receipt, Callable[[], object]] = field(default_factory=dict)

    @property
    def using(self) -> str:
        return self.options.using

    @property
    def group(self) -> str:
        return self.holder.group

    @property
    def topic(self) -> str:
        return self.holder.topic

    def log_fields(self, event: str, **more: Any) -> dict[str, Any]:
        """Return fields for the ``extra`` of a log record about this subscriber."""
        who = {"topic": self.topic, "group": self.group, "subscriber": self.holder.name}
        return {f"mqueue_{name}": value for name, value in {"event": event, **who, **more}.items()}

    def mark_ready(self, partition: Partition) -> None:
        """Make a partition ready after a change, so that the next claim examines it. Ignore a dropped partition."""
        if self.partitions.get(partition.name) is not partition:
            return
        self.ready[partition.name] = None
        partition.idle_since = time.monotonic()
        if partition.more and not partition.fresh:
            self.needs_log_read[partition.name] = None
        if partition.waiting_more and not partition.waiting:
            self.stale_waiting[partition.name] = None

    def set_timer(self, name: str, due: int) -> None:
        """Make the partition ready at ``due`` (epoch milliseconds), unless it has an earlier timer."""
        partition = self.partitions[name]
        if partition.timer is None or due < partition.timer:
            partition.timer = due
            heapq.heappush(self.timers, (due, name))

    def expire_timers(self) -> None:
        """Make the partitions ready whose timers have expired."""
        now = self.clock.now()
        while self.timers and self.timers[0][0] <= now:
            due, name = heapq.heappop(self.timers)
            partition = self.partitions.get(name)
            if partition and partition.timer == due:
                partition.timer = None
                self.mark_ready(partition)
                if partition.quarantined:
                    self.quarantined[name] = None

    def mark_dirty(self, name: str) -> None:
        """Record that a message of the partition was finished, so that its watermark may move."""
        if partition := self.partitions.get(name):
            partition.dirty = True
            self.dirty[name] = None

    def remove_in_flight(self, receipt: Receipt) -> Partition | None:
        """Remove this delivery from ``in_flight``. Return its partition; None if either is not in memory."""
        delivery = self.in_flight.get(receipt.offset)
        if delivery is None or delivery.status.receipt != receipt:
            return None
        del self.in_flight[receipt.offset]
        partition = self.partitions.get(receipt.partition)
        if partition:
            partition.ended(receipt.offset, self.clock.now())
        return partition

    def quarantine(self, receipt: Receipt, alone: bool, failures: int) -> None:
        if partition := self.partitions.get(receipt.partition):
            partition.quarantined.append(QuarantinedDelivery(receipt, alone, failures))
            self.quarantined[partition.name] = None

    def quarantine_expired(self) -> None:
        """Quarantine deliveries whose visibility timeout has expired: their consumer hangs, or has lost them."""
        for delivery in list(self.in_flight.values()):
            status = delivery.status
            if status.expires <= self.clock.now():
                self.remove_in_flight(status.receipt)
                self.quarantine(status.receipt, status.alone, status.failures)

    def reread_retries(self, partition: Partition) -> None:
        """Let the next claim read the partition's retries again: the table and memory may differ."""
        partition.waiting_more = True
        self.stale_waiting[partition.name] = None

    def drop(self, names: Iterable[str]) -> set[str]:
        """Forget partitions, and mark their deliveries as lost. Return those that were in memory."""
        gone = set(names)
        known = gone & self.partitions.keys()
        for offset in [o for o, d in self.in_flight.items() if d.status.receipt.partition in gone]:
            self.in_flight.pop(offset).status.lost = True
        for name in gone:
            self.partitions.pop(name, None)
            for memory in (
                self.ready,
                self.needs_log_read,
                self.stale_waiting,
                self.dirty,
                self.unsettled,
                self.quarantined,
            ):
                memory.pop(name, None)
        return known

    def note_settled(
        self,
        deliveries: Sequence[Delivery],
        verb: str,
        due_in: int | None = None,
    ) -> list[Delivery]:
        """Update the state for deliveries that ``verb`` has settled. Return those that were not settled before.

        ``due_in``: milliseconds until a retry.
        """
        with self.lock:
            unsettled = [d for d in deliveries if not d.status.settled_by]
            due = self.clock.now() + (due_in or 0)  # The same for all: a batch is retried together.
            for delivery in deliveries:
                receipt, delivery.status.settled_by = delivery.status.receipt, verb
                self.unconfirmed.pop(receipt, None)
                partition = self.remove_in_flight(receipt)
                if partition is None:
                    continue
                if due_in is None:
                    partition.uncounted.pop(receipt.offset, None)
                    self.mark_dirty(receipt.partition)
                else:
                    partition.add_retry(receipt.offset, due)
                    self.set_timer(receipt.partition, due)
                self.mark_ready(partition)
        return unsettled

    def leave_quarantine(self, deliveries: Sequence[Delivery]) -> None:
        """Move expired deliveries from quarantine back to in flight, because their handlers have extended them."""
        with self.lock:
            for delivery in deliveries:
                receipt = delivery.status.receipt
                partition = self.partitions.get(receipt.partition)
                late = [s for s in partition.quarantined if s.receipt == receipt] if partition else []
                if partition and late:
                    partition.quarantined.remove(late[0])
                    partition.in_flight.add(receipt.offset)
                    self.in_flight[receipt.offset] = delivery

    def lose(self, stale: set[Receipt]) -> None:
        """Mark deliveries that this subscriber no longer owns as lost, and forget them."""
        with self.lock:
            for receipt in stale:
                if (delivery := self.in_flight.get(receipt.offset)) and delivery.status.receipt == receipt:
                    delivery.status.lost = True
                if partition := self.remove_in_flight(receipt):
                    # If another thread has settled it, ``note_settled`` finds no delivery here: read the state again.
                    self.reread_retries(partition)
                    self.mark_dirty(receipt.partition)
                    self.mark_ready(partition)
