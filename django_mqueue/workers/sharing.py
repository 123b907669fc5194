"""Share a worker's threads among its handlers: what each one starts, claims, and claims ahead."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from ..protocol.claiming import UNLIMITED
from ..protocol.delivery import Delivery, DeliveryAcknowledger
from ..protocol.subscriber import Subscriber
from .handler_calls import HandlerCall
from .pool import HandlerPool
from .registry import Handler
from .turns import Contender, Turns

Item = TypeVar("Item")

LOTS_FROM = 200
"""If so many messages are claimed ahead, a thread gets more than one message.

After a crash, a message of a lot has used an attempt even if its handler had not begun. With few messages, lots would
save little.
"""
AHEAD_BYTES = 16 << 20
"""Maximum bytes of payload claimed ahead for a handler, if messages are as large as those of its last claim."""
LOCKED_FOR = 0.5
"""Seconds until the next try to settle a delivery whose row was locked, for example by a handler that still runs."""
EMPTY_CLAIM_PAUSE = 0.02
"""Seconds for which a handler whose claim got nothing is skipped, unless a new message arrives."""


class Share(NamedTuple):
    """The size of a claim.

    ``start``: messages or batches to start now, in ``lot_count`` threads. ``ahead``: further messages to claim ahead.
    """

    lot_count: int = 0
    start: int = 0
    ahead: int = 0


class Plan(NamedTuple):
    """A handler's next step: start ``lots`` of messages that were claimed ahead, and claim a share."""

    lots: Sequence[list[Delivery]] = ()
    share: Share = Share()


def divide(items: Sequence[Item], parts: int) -> list[list[Item]]:
    """Divide items among at most ``parts`` lists, in turn."""
    return [list(items[part::parts]) for part in range(min(parts, len(items)))]


class Sharing:
    """Shares the threads of ``pool`` by the time that handlers use. ``subscribers``: those that may claim.

    A thread gets one lot of messages. While lots run, messages for the next lots are claimed into ``ahead``, but not
    for slow handlers and not as batches, because other workers may be free.
    """

    def __init__(
        self, subscribers: Sequence[Subscriber], handlers: Mapping[Subscriber, Handler], pool: HandlerPool
    ) -> None:
        self.subscribers, self.handlers, self.pool = subscribers, handlers, pool
        self.ahead: dict[Subscriber, deque[Delivery]] = {subscriber: deque() for subscriber in subscribers}
        self._subscriber_of: dict[DeliveryAcknowledger, Subscriber] = {
            subscriber.acknowledger: subscriber for subscriber in subscribers
        }
        self._turns: Turns[Subscriber] = Turns(
            pool.size, {subscriber: handlers[subscriber].weight for subscriber in subscribers}
        )
        self._skipped: dict[Subscriber, tuple[float, int]] = {}
        """For each skipped handler: the monotonic time when the pause ends, and the tail when it began."""
        self._blocked_until: dict[Subscriber, float] = {}

    def subscriber_of(self, delivery: Delivery) -> Subscriber:
        return self._subscriber_of[delivery.status.acknowledger]

    @property
    def waiting(self) -> int:
        """Return the number of claimed messages that wait for a thread."""
        return sum(map(len, self.ahead.values()))

    @property
    def startable(self) -> int:
        """Return the number of ``waiting`` messages whose handlers may start a call now."""
        return sum(len(ahead) for subscriber, ahead in self.ahead.items() if self._room(subscriber) > 0)

    def lot_size(self, subscriber: Subscriber) -> int:
        """Return the number of messages, or batches, that a thread gets at once: one, without a backlog."""
        if len(self.ahead[subscriber]) < LOTS_FROM:
            return 1
        return min(self._turns.lot_size(subscriber), max(self._most_ahead(subscriber) // self.pool.size, 1))

    def ended(self, call: HandlerCall) -> None:
        """Charge the handler for the time of a call that has ended."""
        self._turns.ended(self.subscriber_of(call.deliveries[0]), call.seconds)

    def claimed(self, subscriber: Subscriber, count: int, seconds: float) -> None:
        """Charge the handler for the time of a claim. If the claim got nothing, do not repeat it at once."""
        self._turns.charge(subscriber, seconds)
        if not count and subscriber.has_work:
            self.skip_briefly([subscriber])

    def skip_briefly(self, subscribers: Iterable[Subscriber]) -> None:
        """Skip handlers that cannot claim for a moment, because their groups may be paused or rows locked."""
        for subscriber in subscribers:
            self._skipped[subscriber] = time.monotonic() + EMPTY_CLAIM_PAUSE, subscriber.state.tail

    def hold_back(self, subscriber: Subscriber) -> None:
        """Start no message of a handler for a moment, because another transaction has locked its claimed messages."""
        self._blocked_until[subscriber] = time.monotonic() + LOCKED_FOR

    def take_back(self, calls: Iterable[HandlerCall]) -> int:
        """Put messages from lots back at the front of ``ahead``, except lost ones. They start before the others.

        Return the number of messages, including the lost ones.
        """
        count = 0
        for call in reversed(list(calls)):
            owned = [delivery for delivery in call.deliveries if not delivery.status.lost]
            for delivery in owned:
                delivery.status.handed = False
            self.ahead[self.subscriber_of(call.deliveries[0])].extendleft(reversed(owned))
            count += len(call.deliveries)
        return count

    def put_back_leaving(self, subscriber: Subscriber) -> None:
        """Put back messages that were claimed ahead, if other subscribers wait for their partitions."""
        self.remove(subscriber, subscriber.put_back_leaving(self.ahead[subscriber]))

    def remove(self, subscriber: Subscriber, gone: Collection[Delivery]) -> None:
        """Remove messages of a handler from ``ahead``."""
        if gone:
            ahead, gone = self.ahead[subscriber], set(gone)
            others = [delivery for delivery in ahead if delivery not in gone]
            ahead.clear()
            ahead.extend(others)

    def plans(self, free: int, returning: Collection[Subscriber]) -> dict[Subscriber, Plan]:
        """Return what handlers start on the ``free`` threads.

        ``returning``: handlers whose calls have ended and are not settled yet. The transaction that settles them also
        claims their next messages. For other handlers that may claim, threads stay free.
        """
        contenders = {}
        for subscriber in self.subscribers:
            lot_count = -(-len(self.ahead[subscriber]) // self.lot_size(subscriber))
            may_claim = subscriber in returning or self._has_work(subscriber)
            if (most := min(self._room(subscriber), UNLIMITED if may_claim else lot_count)) > 0:
                contenders[subscriber] = Contender(most, self.lot_size(subscriber))
        shares = self._turns.share(free, contenders, self._running())
        found = {}
        for subscriber in contenders:
            threads, size = shares.get(subscriber, 0), self.lot_size(subscriber)
            starting = list(islice(self.ahead[subscriber], threads * size))
            plan = Plan(divide(starting, threads))
            if subscriber in returning:
                left = threads - len(plan.lots)
                missing = self._missing_ahead(subscriber, len(starting))
                plan = Plan(plan.lots, Share(left, left * size, missing))
            found[subscriber] = plan
        return found

    def claims(self, free: int, but: Collection[Subscriber] = ()) -> dict[Subscriber, Share]:
        """Return what to claim for each handler, for ``free`` threads and ahead. ``but``: handlers to skip."""
        working = [
            subscriber
            for subscriber in self.subscribers
            if subscriber not in but and self._has_work(subscriber) and self._room(subscriber) > 0
        ]
        contenders = {
            subscriber: Contender(self._room(subscriber), self.lot_size(subscriber))
            for subscriber in working
            if not self.ahead[subscriber]
        }
        running = self._running()
        shares = self._turns.share(free, contenders, running)
        found = {}
        for subscriber in sorted(working, key=lambda subscriber: self._turns.spent(subscriber, running)):
            lot_count = shares.get(subscriber, 0)
            share = Share(lot_count, lot_count * self.lot_size(subscriber), self._missing_ahead(subscriber))
            if share.lot_count or share.ahead:
                found[subscriber] = share
        return found

    def _missing_ahead(self, subscriber: Subscriber, starting: int = 0) -> int:
        """Return how many messages to claim ahead: a round and ``LOTS_FROM``; 0 if fewer than a round.

        A round is one lot for each thread that may run the handler. ``starting``: the number of messages claimed ahead
        that start now. Slow handlers and batches get 0, because other workers may be free.
        """
        size, lot_size = self.pool.size, self._turns.lot_size(subscriber)
        if subscriber.state.options.batch or lot_size == 1:
            return 0
        most = self._most_ahead(subscriber)
        threads = min(self.handlers[subscriber].concurrency or size, size)
        round_size = min(lot_size * threads, max(most // 2, 1))
        missing = min(LOTS_FROM + round_size, most) - (len(self.ahead[subscriber]) - starting)
        return missing if missing >= round_size else 0

    @staticmethod
    def _most_ahead(subscriber: Subscriber) -> int:
        """Return how many messages may be claimed ahead, by their size."""
        return max(int(AHEAD_BYTES / max(subscriber.state.payload_bytes, 1)), 1)

    def _has_work(self, subscriber: Subscriber) -> bool:
        until, tail = self._skipped.get(subscriber, (-math.inf, 0))
        is_over = until <= time.monotonic() or subscriber.state.tail > tail
        return is_over and subscriber.has_work

    def _room(self, subscriber: Subscriber) -> int:
        """Return how many more lots of this handler may start now."""
        if subscriber.backing_off or self._blocked_until.get(subscriber, -math.inf) > time.monotonic():
            return 0
        concurrency = self.handlers[subscriber].concurrency
        running = self.pool.running[subscriber.acknowledger]
        return UNLIMITED if concurrency is None else max(concurrency - running, 0)

    def _running(self) -> dict[Subscriber, float]:
        """Return the seconds that each handler's current and waiting calls take. They are not charged yet."""
        now, found = time.monotonic(), defaultdict[Subscriber, float](float)
        for lot in self.pool.lots:
            subscriber = self._subscriber_of[lot.acknowledger]
            average = self._turns.average(subscriber)
            ran = now - lot.current.started if lot.current else 0.0
            found[subscriber] += max(ran, average) + len(lot.waiting) * average
        return found
