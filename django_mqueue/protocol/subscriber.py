"""One subscriber, which combines the other modules. A worker process or a ``Subscription`` calls ``tick``."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import contextmanager

from django.db import DatabaseError

from ..policy.ids import new_incarnation
from ..store.connection import errors
from ..store.leases import Holder
from ..store.queries import unfinished
from .acknowledging.acknowledger import Acknowledger
from .claiming import UNLIMITED, Claimer
from .consumer_state import ConsumerState, Options
from .delivery import Delivery
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
        self.context = ConsumerState(
            Holder(group, topic, name, new_incarnation()), options, events=tailer.events
        )
        self.tailer, self.polled_by_caller = tailer, polled_by_caller
        self.acknowledger = Acknowledger(self.context)
        self.claimer = Claimer(self.context, self.acknowledger)
        self.membership = Membership(self.context, tailer)
        self.watermarks = Watermarks(self.context, tailer)
        self.collector = Collector(options.using, topic)
        self.careful = False
        """If True, the worker settles only deliveries whose rows no other transaction has locked."""
        self._backoff_until = -math.inf

    def start(self) -> None:
        """Join the tailer, then the group. So the tailer reports each message that the first read does not find."""
        self.context.tail = self.tailer.join(self.context.topic, self)
        self.membership.start()

    def stop(self, unstarted: Sequence[Delivery] = (), *, wait_for_locks: bool = True) -> None:
        """Leave the group, and put back ``unstarted``, which reached no handler. See ``Membership.stop``."""
        with self.context.lock:
            self.claimer.undo_unknown_claim()
            self.acknowledger.return_unstarted(unstarted)
            self.watermarks.finish()
            self.membership.stop(wait_for_locks=wait_for_locks)
            self.leave_tailer()  # Last: if the connection is lost before, ``stop`` is repeated and needs the tailer.

    def wind_up(self, unstarted: MutableSequence[Delivery]) -> None:
        """Do what is due while the last handlers run. Put back, and remove, ``unstarted``; release idle partitions."""
        context = self.context
        with context.lock:
            if self.backing_off:
                self.membership.send_heartbeat_if_due()
                return
            self.claimer.undo_unknown_claim()
            self.acknowledger.return_unstarted(unstarted)
            unstarted.clear()
            if any(not partition.in_flight for partition in context.partitions.values()):
                self.watermarks.finish()
            self.membership.wind_up()

    def leave_tailer(self) -> None:
        self.tailer.leave(self.context.topic, self)

    @property
    def strict(self) -> bool:
        return self.context.options.strict

    def arrived(self, rows: Sequence[tuple[int, str, str]]) -> None:
        """Take new log rows, each (offset, partition, target group), from the tailer."""
        context = self.context
        with context.lock:
            context.tail = max(context.tail, rows[-1][0])
            for offset, name, target in rows:
                if target and target != context.group:
                    continue
                partition = context.partitions.get(name)
                if partition is None:
                    self.membership.note_arrival(name)
                elif partition.arrived(offset) or partition.more:
                    context.mark_ready(partition)

    def reload(self, position: int) -> None:
        """Read all partitions again, after the tailer has reopened the log. Deliveries in flight continue."""
        context = self.context
        with context.lock:
            self.claimer.undo_unknown_claim()
            context.tail = position
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
                self.context.group, self.context.topic, BACKOFF, error,
                extra=self.context.log_fields("lock_wait"),
            )  # fmt: skip

    def send_heartbeat_if_due(self) -> None:
        """Renew the leases and send a heartbeat if they are due. Call this during a long operation."""
        self.membership.send_heartbeat_if_due()

    def tick(self) -> None:
        """Do what is due. While the group backs off, only renew its leases and send its heartbeat."""
        with self.context.lock:
            if self.backing_off:
                self.membership.send_heartbeat_if_due()
                return
            self.membership.tick()
            self.watermarks.tick()
            self.collector.tick()
            if self.context.reload_needed:
                self.tailer.request_reload(self.context.topic)
                self.context.reload_needed = False
            if self.polled_by_caller:
                self.context.quarantine_expired()

    def due_in(self) -> float:
        """Return the seconds until ``tick`` has work, or until a retry may be claimed. New messages do not count."""
        context, due = self.context, self.membership.due_in(backing_off=self.backing_off)
        if self.backing_off:
            return max(min(due, self._backoff_until - time.monotonic()), 0)
        due = min(due, self.watermarks.due_in(), self.collector.due_in())
        with context.lock:
            if context.timers and not context.paused:
                due = min(due, (context.timers[0][0] - context.clock.now()) / 1000)
        return max(due, 0)

    def claim(self, capacity: int, start_now: int, most: int = UNLIMITED) -> list[Delivery]:
        """Claim messages (see ``Claimer.claim``). Return an empty list while the group backs off."""
        got: list[Delivery] = []
        if not self.backing_off:
            with self.backoff_after_lock_wait(), self.context.lock:
                got = self.claimer.claim(capacity, start_now, most)
        return got

    def ack_and_claim(
        self, acks: Sequence[Delivery], starting: Sequence[Delivery], capacity: int, start_now: int, most: int
    ) -> list[Delivery]:
        """Acknowledge ``acks``, mark ``starting`` as handed to handlers, and claim messages, in one transaction."""
        if not capacity:
            self.acknowledger.ack(acks, starting)
            return []
        with self.context.lock:
            return self.claimer.claim(capacity, start_now, most, acks=acks, starting=starting)

    @property
    def has_work(self) -> bool:
        """Return whether a claim may find messages, judged by memory alone."""
        context = self.context
        if context.paused or self.backing_off:
            return False
        with context.lock:
            context.expire_timers()
        return bool(context.ready or context.needs_log_read or context.stale_waiting)

    @property
    def in_flight(self) -> int:
        return len(self.context.in_flight)

    @property
    def has_quarantined(self) -> bool:
        return bool(self.context.quarantined) and not (self.backing_off or self.context.paused)

    def quarantined_delivery(self) -> Delivery | None:
        """Return the delivery that runs alone now, or None."""
        return next((d for d in self.deliveries() if d.status.alone), None)

    def deliveries(self) -> list[Delivery]:
        """Return a copy of the deliveries in flight. Another thread may remove one at any moment."""
        with self.context.lock:
            return list(self.context.in_flight.values())

    def find_work(self) -> bool:
        """Search all partitions again. Return whether this subscriber has work, or could take some, now."""
        context = self.context
        with context.lock:
            free = self.membership.discover_now()
            context.expire_timers()
            if context.paused:
                return bool(context.in_flight) or context.resetting
            now, strict = context.clock.now(), context.options.strict
            return free or bool(
                context.in_flight or context.quarantined or context.needs_log_read or context.stale_waiting
                or self.membership.candidates
                or any(
                    (p.quarantined and p.free_at <= now) or p.has_due(now, strict=strict)
                    for p in context.partitions.values()
                )
            )  # fmt: skip

    def left_to_others(self) -> int:
        """Count messages that could be handled now, but whose partitions other subscribers have leased."""
        context = self.context
        return (
            0 if context.paused else unfinished.left_to_others(context.using, context.holder, context.start)
        )
