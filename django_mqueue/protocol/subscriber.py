"""One subscriber, which combines the other modules. A worker process or a ``Subscription`` calls ``tick``."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterator, MutableSequence, Sequence
from contextlib import contextmanager

from django.db import DatabaseError

from ..policy.ids import new_incarnation
from ..store.connection import errors
from ..store.leases import Holder
from ..store.queries import partition_progress
from .acknowledging.acknowledger import Acknowledger
from .claiming import UNLIMITED, Claimer
from .consumer_state import ConsumerState
from .delivery import Delivery, Options
from .membership import Membership
from .retention.garbage_collection import Collector
from .tailer import Tailer
from .watermarks import Watermarks

logger = logging.getLogger("django_mqueue")

BACKOFF = 5.0
"""Seconds for which a group backs off after the lock wait timeout of one of its statements."""


class Subscriber:
    """The protocol for one subscriber: one group, topic and name.

    ``polled_by_caller``: a ``Subscription`` runs it, not a worker. It raises lock wait timeouts, and quarantines
    deliveries whose visibility timeout has expired. A worker's group backs off instead, and extends its deliveries.
    """

    def __init__(
        self, topic: str, group: str, name: str, options: Options, tailer: Tailer, *, polled_by_caller: bool
    ) -> None:
        self.state = ConsumerState(
            Holder(group, topic, name, new_incarnation()), options, events=tailer.events
        )
        self.tailer, self.polled_by_caller = tailer, polled_by_caller
        self.acknowledger = Acknowledger(self.state)
        self.claimer = Claimer(self.state, self.acknowledger, tailer)
        self.membership = Membership(self.state, tailer)
        self.watermarks = Watermarks(self.state, tailer)
        self.collector = Collector(options.using, topic)
        self.careful = False
        """If True, the worker settles only deliveries whose rows no other transaction has locked."""
        self._backoff_until = -math.inf

    def start(self) -> None:
        """Join the tailer, then the group. So the tailer reports each message that the first read does not find."""
        self.state.tail = self.tailer.join(self.state.topic, self)
        self.membership.start()

    def stop(self, unstarted: Sequence[Delivery] = (), *, wait_for_locks: bool = True) -> None:
        """Leave the group, and put back ``unstarted``, which reached no handler. See ``Membership.stop``."""
        with self.state.lock:
            self.claimer.undo_unknown_claim()
            self.acknowledger.return_unstarted(unstarted)
            self.watermarks.finish()
            self.membership.stop(wait_for_locks=wait_for_locks)
            self.leave_tailer()  # Last: if the connection is lost before, ``stop`` is repeated and needs the tailer.

    def wind_up(self, unstarted: MutableSequence[Delivery]) -> None:
        """Do what is due while the last handlers run: put back ``unstarted`` unless locked, release idle partitions."""
        state = self.state
        with state.lock:
            if self.backing_off:
                self.membership.send_heartbeat_if_due()
                return
            self.claimer.undo_unknown_claim()
            returned = self.acknowledger.return_unstarted(unstarted)
            locked = [delivery for delivery in unstarted if delivery not in returned]
            unstarted.clear()
            unstarted.extend(locked)
            if any(not partition.in_flight for partition in state.partitions.values()):
                self.watermarks.finish()
            self.membership.wind_up()

    def put_back_leaving(self, unstarted: Collection[Delivery]) -> set[Delivery]:
        """Put back those of ``unstarted`` whose partitions others wait for, except locked ones, and return them."""
        state = self.state
        if not (unstarted and state.leaving) or self.backing_off:
            return set()
        with state.lock:
            leaving = {name for name, partition in state.partitions.items() if partition.leaving}
            found = [delivery for delivery in unstarted if delivery.status.receipt.partition in leaving]
            return self.acknowledger.return_unstarted(found)

    def leave_tailer(self) -> None:
        self.tailer.leave(self.state.topic, self)

    @property
    def strict(self) -> bool:
        return self.state.options.strict

    def arrived(self, rows: Sequence[tuple[int, str, str]]) -> None:
        """Take new log rows, each (offset, partition, target group), from the tailer."""
        state = self.state
        with state.lock:
            state.tail = max(state.tail, rows[-1][0])
            for offset, name, target in rows:
                if target and target != state.group:
                    continue
                partition = state.partitions.get(name)
                if partition is None:
                    self.membership.note_arrival(name)
                elif partition.arrived(offset) or partition.more:
                    state.mark_ready(partition)

    def reload(self, position: int) -> None:
        """Read all partitions again, after the tailer has reopened the log. Deliveries in flight continue."""
        state = self.state
        with state.lock:
            self.claimer.undo_unknown_claim()
            state.tail = position
            self.membership.reload()

    @property
    def backing_off(self) -> bool:
        """True while the group backs off: it claims nothing, settles no delivery and moves no watermark."""
        return time.monotonic() < self._backoff_until

    @contextmanager
    def backoff_after_lock_wait(self) -> Iterator[None]:
        """Let the group back off after a lock wait timeout. A ``Subscription`` raises the error."""
        try:
            yield
        except DatabaseError as error:
            # ``is_locked`` includes NOWAIT errors of ``after_failure``.
            if self.polled_by_caller or not errors.is_locked(error):
                raise
            self._backoff_until, self.careful = time.monotonic() + BACKOFF, True
            logger.warning(
                "group waits for a lock: group %s, topic %s, for %s s; another transaction has locked its rows: %s",
                self.state.group, self.state.topic, BACKOFF, error,
                extra=self.state.log_fields("lock_wait"),
            )  # fmt: skip

    def send_heartbeat_if_due(self) -> None:
        """Renew the leases and send a heartbeat if they are due. Call this during a long operation."""
        self.membership.send_heartbeat_if_due()

    def tick(self) -> None:
        """Do what is due. While the group backs off, only renew its leases and send its heartbeat."""
        with self.state.lock:
            if self.backing_off:
                self.membership.send_heartbeat_if_due()
                return
            self.membership.tick()
            self.watermarks.tick()
            self.collector.tick()
            if self.polled_by_caller:
                self.state.quarantine_expired()

    def due_in(self) -> float:
        """Return the seconds until ``tick`` has work, or until a retry may be claimed. New messages do not count."""
        state, due = self.state, self.membership.due_in(backing_off=self.backing_off)
        if self.backing_off:
            return max(min(due, self._backoff_until - time.monotonic()), 0)
        due = min(due, self.watermarks.due_in(), self.collector.due_in())
        with state.lock:
            if state.timers and not state.paused:
                due = min(due, (state.timers[0][0] - state.clock.now()) / 1000)
        return max(due, 0)

    def claim(self, capacity: int, start_now: int, most: int = UNLIMITED) -> list[Delivery]:
        """Claim messages (see ``Claimer.claim``). Return an empty list while the group backs off."""
        got: list[Delivery] = []
        if not self.backing_off:
            with self.backoff_after_lock_wait(), self.state.lock:
                got = self.claimer.claim(capacity, start_now, most)
        return got

    def ack_and_claim(
        self, acks: Sequence[Delivery], starting: Sequence[Delivery], capacity: int, start_now: int, most: int
    ) -> list[Delivery]:
        """Acknowledge ``acks``, mark ``starting`` as handed to handlers, and claim messages, in one transaction."""
        if not capacity:
            self.acknowledger.ack(acks, starting)
            return []
        with self.state.lock:
            return self.claimer.claim(capacity, start_now, most, acks=acks, starting=starting)

    @property
    def has_work(self) -> bool:
        """Return whether a claim may find messages, judged by memory alone."""
        state = self.state
        if state.paused or self.backing_off:
            return False
        with state.lock:
            state.expire_timers()
        return bool(state.ready or state.needs_log_read or state.stale_waiting)

    @property
    def in_flight(self) -> int:
        return len(self.state.in_flight)

    @property
    def has_quarantined(self) -> bool:
        state = self.state
        if not state.quarantined or state.paused or self.backing_off:
            return False
        with state.lock:
            waiting = [state.partitions.get(name) for name in state.quarantined]
        return any(partition and not partition.leaving for partition in waiting)

    def quarantined_delivery(self) -> Delivery | None:
        """Return the delivery that runs alone now, or None."""
        return next((d for d in self.deliveries() if d.status.alone), None)

    def deliveries(self) -> list[Delivery]:
        """Return a copy of the deliveries in flight. Another thread may remove one at any moment."""
        with self.state.lock:
            return list(self.state.in_flight.values())

    def find_work(self) -> bool:
        """Run a full discovery. Return whether this subscriber has work, or could lease a partition, now."""
        state = self.state
        with state.lock:
            free = self.membership.discover_now()
            state.expire_timers()
            if state.paused:
                return bool(state.in_flight) or state.resetting
            now, strict = state.clock.now(), state.options.strict
            return free or bool(
                state.in_flight or state.quarantined or state.needs_log_read or state.stale_waiting
                or self.membership.candidates
                or any(
                    (p.quarantined and p.free_at <= now) or p.has_due(now, strict=strict)
                    for p in state.partitions.values()
                )
            )  # fmt: skip

    def left_to_others(self) -> int:
        """Count messages that are in flight or deliverable now, in partitions that other subscribers have leased."""
        state = self.state
        return (
            0 if state.paused else partition_progress.left_to_others(state.using, state.holder, state.start)
        )
