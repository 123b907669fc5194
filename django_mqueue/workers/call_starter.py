"""Give messages to a worker's threads: settle what has ended, start what was claimed ahead, and claim more."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from .. import instruments
from ..policy.quarantine import Quarantine
from ..protocol.claim_scheduler import ClaimScheduler, by_call
from ..protocol.claiming import UNLIMITED
from ..protocol.delivery import Delivery
from ..protocol.subscriber import Subscriber
from .completer import Completer
from .handler_calls import HandlerCall
from .pool import HandlerPool
from .registry import Handler
from .sharing import Share, Sharing, divide


class CallStarter:
    """Starts at most ``max_messages`` messages in ``threads`` threads. ``started``: the number of messages so far.

    ``ready``: the subscribers that may claim. The caller changes this list.
    """

    def __init__(
        self, handlers: Mapping[Subscriber, Handler], threads: int, max_messages: int | None
    ) -> None:
        self._handlers = handlers
        self._max_messages = UNLIMITED if max_messages is None else max_messages
        self.ready = list(handlers)
        self.started = 0
        self.pool = HandlerPool(threads)
        self.sharing = Sharing(self.ready, handlers, self.pool)
        self.completer = Completer(handlers)
        self._scheduler = ClaimScheduler(self.ready, Quarantine(), self._at_work)

    @property
    def is_below_limit(self) -> bool:
        """Return whether messages may still start. Messages in lots count, because they may be withdrawn."""
        return self._left > 0 or self.pool.has_waiting

    @property
    def has_startable(self) -> bool:
        """Return whether a message that was claimed ahead can start now."""
        return self.free_threads() > 0 and self.sharing.startable > 0

    @property
    def is_idle(self) -> bool:
        return not (self.pool.calls or self.sharing.waiting or self.completer.unsettled)

    def free_threads(self) -> int:
        """Return the number of threads that may take messages now, and update the quarantine."""
        free = 0 if self._scheduler.update_quarantine() else self.pool.free
        return max(min(free, self._left), 0)

    @property
    def _left(self) -> int:
        """Return how many more messages may start."""
        return self._max_messages - self.started

    def _at_work(self) -> int:
        """Return how many calls run or may start now. An overdue call counts, because its handler may still run."""
        overdue = sum(outcome.overdue for outcome in self.completer.unsettled)
        return self.pool.calls + self.sharing.startable + overdue

    def collect(self, timeout: float) -> None:
        """Collect the calls that have ended. Wait up to ``timeout`` seconds for the end of a lot."""
        for call in self.pool.finished(timeout):
            self.sharing.ended(call)
            if not all(outcome.verdict.unread for outcome in call.outcomes):
                instruments.record(
                    instruments.HANDLER_SECONDS,
                    call.seconds,
                    call.handler.topic,
                    call.handler.group,
                    error=call.error,
                )
            self.completer.unsettled += call.outcomes

    def settle(self, *, start_more: bool) -> None:
        """Settle the outcomes. With ``start_more``, start messages that were claimed ahead, and claim the next ones."""
        self.collect(0)
        self.withdraw(all_lots=False)
        returning = {self.sharing.subscriber_of(outcome.delivery) for outcome in self.completer.due()}
        plans = self.sharing.plans(self.free_threads(), returning) if start_more else {}
        for delivery in self.completer.settle_and_start(plans, self._ack_and_claim, self._start_ahead):
            self.sharing.hold_back(self.sharing.subscriber_of(delivery))
        for outcome in self.completer.unsettled:
            if outcome.delivery.status.alone and not outcome.overdue:
                # Its handler has ended, so other messages may run before it is settled.
                self._scheduler.let_others_run(outcome.delivery)

    def _ack_and_claim(
        self, subscriber: Subscriber, acks: list[Delivery], starting: list[Delivery], share: Share
    ) -> None:
        """Acknowledge deliveries, mark others as handed to handlers, and claim a share, in one transaction."""
        waits = self._scheduler.update_quarantine() or any(each.has_quarantined for each in self.ready)
        most = 0 if waits else max(self._left - self.sharing.waiting, 0)
        start, capacity = min(share.start, most), min(share.start + share.ahead, most)
        began = time.monotonic()
        got = subscriber.ack_and_claim(acks, starting, capacity, start, most)
        if capacity:
            self.sharing.claimed(subscriber, len(got), time.monotonic() - began)
        self._take(got, share.lot_count)

    def claim(self) -> int:
        """Claim messages for the free threads, and claim ahead for quick handlers. Return how many."""
        free, most = self.free_threads(), self._left - self.sharing.waiting
        claims = self.sharing.claims(free)
        if not claims and not any(subscriber.has_quarantined for subscriber in self.ready):
            return 0
        quarantined = self._scheduler.claim_quarantined(free) if most > 0 else []
        if quarantined is not None:
            self.sharing.skip_briefly(claims)
            self._take(quarantined, 1)
            return len(quarantined)
        claimed, short = 0, set[Subscriber]()
        while claims and claimed < most:
            for subscriber, share in claims.items():
                began, left = time.monotonic(), most - claimed
                got = (
                    subscriber.claim(min(share.start + share.ahead, left), share.start, left) if left else []
                )
                claimed += len(got)
                self.sharing.claimed(subscriber, len(got), time.monotonic() - began)
                if self._take(got, share.lot_count) < share.lot_count:
                    short.add(subscriber)
            # The other handlers may use the threads for which a claim got nothing.
            claims = self.sharing.claims(self.free_threads(), short) if short.intersection(claims) else {}
        return claimed

    def _take(self, deliveries: list[Delivery], threads: int) -> int:
        """Start the deliveries that were claimed for ``threads`` free threads, and keep those claimed ahead.

        Return how many threads start.
        """
        starting = []
        for together in by_call(deliveries):
            if together[0].status.handed:
                starting.append(together)
            else:
                self.sharing.ahead[self.sharing.subscriber_of(together[0])] += together
        lots = divide(starting, threads)
        for lot in lots:
            self._start(lot)
        return len(lots)

    def _start(self, calls: Sequence[list[Delivery]]) -> None:
        """Start a lot: calls of one handler for one thread, each with one message or one batch."""
        self.started += sum(map(len, calls))
        handler = self._handlers[self.sharing.subscriber_of(calls[0][0])]
        self.pool.start([HandlerCall(handler, deliveries) for deliveries in calls])

    def _start_ahead(self, lot: Sequence[Delivery]) -> None:
        """Start a lot of messages that were claimed ahead, except those that this worker no longer owns."""
        self.sharing.remove(self.sharing.subscriber_of(lot[0]), lot)
        if calls := [[delivery] for delivery in lot if not delivery.status.lost]:
            self._start(calls)

    def withdraw(self, *, all_lots: bool) -> None:
        """Take messages back from all lots, or from lots whose current call is slow. Other threads may start them."""
        self.started -= self.sharing.take_back(self.pool.withdraw(all_lots=all_lots))
