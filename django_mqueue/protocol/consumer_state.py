"""The consumer state of one subscriber: its identity, options and partitions, and the database's time."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import transaction

from ..store.acknowledgements import Deliveries
from ..store.connection import session
from ..store.delivery_state import Receipt
from ..store.leases import Holder
from . import events
from .events import EventQueue, EventSink, Settlement
from .partition_state import Partition, QuarantinedDelivery

if TYPE_CHECKING:
    from .delivery import Delivery

logger = logging.getLogger("django_mqueue")


class Clock:
    """An estimate of the database's time. SQL compares times again, so a wrong estimate breaks no guarantee."""

    def __init__(self) -> None:
        self._offset = 0.0

    def set(self, now_ms: int) -> None:
        self._offset = now_ms - time.monotonic() * 1000

    def now(self) -> int:
        return int(time.monotonic() * 1000 + self._offset)


@dataclass(frozen=True)
class Options:
    """The options of a subscriber. Times are in milliseconds.

    ``batch``: the handler takes up to ``batch_size`` messages of a partition in one call. The next batch is claimed
    when this one is settled. ``eager``: memory is updated at once, before the commit. Tests need this, because each
    test is one transaction that never commits. ``low_priority_share``: the share of the messages that is claimed
    from the lowest priority. ``after_failure``: the transaction that settles a failed attempt calls it with the
    database's alias, the message's offset, and whether it is dead-lettered. A repeated transaction calls it again.
    """

    using: str
    batch_size: int = 10
    strict: bool = False
    max_attempts: int = 3
    visible_ms: int = 60_000
    eager: bool = False
    batch: bool = False
    low_priority_share: float = 0.0
    after_failure: Callable[[str, int, bool], None] | None = None


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
    - ``reload_needed``: the database was perhaps restored to an earlier state. The next tick reads everything again.
    - ``leaving``: the number of partitions that the last discovery left to other subscribers.
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
    reload_needed: bool = False
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

    def drop(self, names: Iterable[str], reason: str = "lost") -> None:
        """Forget partitions; mark their deliveries as lost. ``reason``: for the signal ``lease_lost``; '': none."""
        gone = set(names)
        lost = gone & self.partitions.keys()
        if reason:
            events.leases_lost(self, lost, reason)
        if lost and reason == "lost":
            logger.warning(
                "partitions lost: subscriber %s, group %s, topic %s, %s partitions; another worker may have them, or"
                " the group was reset",
                self.holder.name, self.group, self.topic, len(lost),
                extra=self.log_fields("lease_lost", partitions=len(lost)),
            )  # fmt: skip
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

    def note_after_commit(
        self, deliveries: Sequence[Delivery], note: Callable[[Sequence[Delivery]], object]
    ) -> None:
        """Call ``note`` with the deliveries when the transaction that settles them commits; never after a rollback.

        Outside a transaction, and with ``eager``, the call happens at once. Django calls no commit hook in a
        transaction that was begun by turning autocommit off. For such a transaction, ``confirm`` reads the result.
        """
        if self.options.eager or not session.in_transaction(self.using):
            note(deliveries)
        elif session.calls_hooks(self.using):
            transaction.on_commit(partial(note, deliveries), using=self.using)
        else:
            with self.lock:
                self.unconfirmed |= {d.status.receipt: partial(note, [d]) for d in deliveries}

    def confirm(self) -> None:
        """Run the callbacks in ``unconfirmed`` whose transaction has committed, as the delivery state shows.

        The caller must hold no locks: the callbacks send signals.
        """
        if not self.unconfirmed:
            return
        callbacks = []
        with self.lock:
            there = session.run(self.using, Deliveries(self.holder, self.unconfirmed).states)
            for receipt in sorted(self.unconfirmed):
                found = there.get(receipt)
                open_here = self.in_flight.get(receipt.offset)
                if found is not None and not found.in_flight:
                    callbacks.append(self.unconfirmed.pop(receipt))
                elif found is None or open_here is None or open_here.status.receipt != receipt:
                    # It was settled in the meantime, or this subscriber no longer owns it.
                    del self.unconfirmed[receipt]
        for callback in callbacks:
            callback()

    def note_settled(
        self,
        deliveries: Sequence[Delivery],
        verb: str,
        due_in: int | None = None,
        settlement: Settlement | None = None,
    ) -> None:
        """Update the state for deliveries that ``verb`` has settled. ``due_in``: milliseconds until a retry."""
        with self.lock:
            news = [d for d in deliveries if not d.status.settled_by]
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
        if settlement:
            events.ended(self, news, settlement)

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
        """Mark deliveries that this subscriber no longer owns as lost, and forget them.

        Inside a caller's transaction, without ``eager``, only ``check_leases`` is set: a thread that holds ``lock`` may
        wait for rows that this transaction has locked.
        """
        if not stale:
            return
        self.check_leases = True
        if session.in_transaction(self.using) and not self.options.eager:
            return
        with self.lock:
            for receipt in stale:
                if (delivery := self.in_flight.get(receipt.offset)) and delivery.status.receipt == receipt:
                    delivery.status.lost = True
                if partition := self.remove_in_flight(receipt):
                    # If another thread has settled it, ``note_settled`` finds no delivery here: read the state again.
                    self.reread_retries(partition)
                    self.mark_dirty(receipt.partition)
                    self.mark_ready(partition)
