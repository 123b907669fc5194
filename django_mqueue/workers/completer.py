"""The completer: it settles deliveries by the outcomes of their handlers.

All acks of a group share a commit. Failures with the same verdict share a commit, unless messages must be moved:
dead-lettered or parked.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from django.db import DatabaseError

from ..exceptions import StaleDelivery
from ..printing import on_a_line
from ..protocol.acknowledging.acknowledger import is_parked
from ..protocol.acknowledging.extending import extend_unlocked
from ..protocol.delivery import Delivery, DeliveryAcknowledger
from ..protocol.subscriber import Subscriber
from ..store.connection import errors
from .handler_calls import Outcome, Verdict
from .registry import Handler
from .sharing import LOCKED_FOR, Plan, Share

logger = logging.getLogger("django_mqueue")

AT_ONCE = 100
"""Maximum number of transactions for failures in one turn of the loop. Leases are renewed only between turns."""
Claim = Callable[[Subscriber, list[Delivery], list[Delivery], Share], object]
"""Acknowledges deliveries, marks others as handed to handlers, and claims a share for a subscriber."""
Start = Callable[[list[Delivery]], None]


class Completer:
    """Settles outcomes. ``unsettled``: outcomes that are not settled yet. ``counts``: settled messages by verb."""

    def __init__(self, handlers: Mapping[Subscriber, Handler]) -> None:
        self.handlers = handlers
        self.unsettled: list[Outcome] = []
        self.counts: Counter[str] = Counter()
        self._subscriber_of: dict[DeliveryAcknowledger, Subscriber] = {
            subscriber.acknowledger: subscriber for subscriber in handlers
        }
        self._visible_at = -math.inf
        self._locked: dict[int, float] = {}

    @property
    def all_locked(self) -> bool:
        """Return whether all outcomes wait for handlers that have run too long and hold their rows locked."""
        return all(outcome.overdue and id(outcome) in self._locked for outcome in self.unsettled)

    def settle_and_start(self, plans: dict[Subscriber, Plan], claim: Claim, start: Start) -> list[Delivery]:
        """Settle the outcomes that can be settled now, and carry out plans.

        ``claim`` acknowledges deliveries, marks the messages of lots as handed to handlers, and claims a share. Then
        each lot is passed to ``start``. Returns the messages of lots that another transaction has locked. If the
        connection fails, outcomes that are not settled stay in ``unsettled``.
        """
        locked: list[Delivery] = []
        for subscriber in self.handlers:
            acks = [
                o
                for o in self.due()
                if o.verdict.verb == "ack" and o.delivery.status.acknowledger is subscriber.acknowledger
            ]
            plan = plans.get(subscriber, Plan())
            if (acks or plan.lots) and not subscriber.backing_off:
                with subscriber.backoff_after_lock_wait():
                    found = self._ack(subscriber, acks, plan, claim)
                    for lot in plan.lots:
                        if free := [delivery for delivery in lot if delivery not in found]:
                            start(free)
                        locked += [delivery for delivery in lot if delivery in found]
        for alike in self._failures_by_verdict()[:AT_ONCE]:
            subscriber = self._subscriber_of[alike[0].delivery.status.acknowledger]
            if not subscriber.backing_off:
                with subscriber.backoff_after_lock_wait():
                    self._fail(subscriber, alike)
        return locked

    def due(self) -> Iterator[Outcome]:
        """Return the outcomes to settle now. Outcomes whose rows were locked wait for ``LOCKED_FOR`` seconds."""
        now = time.monotonic()
        return (outcome for outcome in self.unsettled if self._locked.get(id(outcome), now) <= now)

    def _failures_by_verdict(self) -> list[list[Outcome]]:
        """Return the failed outcomes in lists that can be settled together: the same verdict for the same group."""
        found: dict[Hashable, list[Outcome]] = {}
        for outcome in self.due():
            if (
                outcome.verdict.verb == "ack"
                or self._subscriber_of[outcome.delivery.status.acknowledger].backing_off
            ):
                continue
            same: Hashable = (outcome.delivery.status.acknowledger, outcome.verdict, outcome.overdue)
            found.setdefault(id(outcome) if _needs_own_transaction(outcome) else same, []).append(outcome)
        return list(found.values())

    def _ack(self, subscriber: Subscriber, acks: list[Outcome], plan: Plan, claim: Claim) -> list[Delivery]:
        """Acknowledge outcomes, and carry out a plan. Return the deliveries that another transaction has locked."""
        deliveries = [outcome.delivery for outcome in acks]
        starting = {delivery: None for lot in plan.lots for delivery in lot}
        share = Share() if subscriber.careful else plan.share

        def ack(free: list[Delivery]) -> Sequence[Delivery]:
            """Acknowledge, start and claim. Return the deliveries that no longer belong to this subscriber."""
            gone: Sequence[Delivery] = ()
            try:
                claim(
                    subscriber,
                    [d for d in free if d not in starting],
                    [d for d in free if d in starting],
                    share,
                )
            except StaleDelivery as error:
                gone = error.stale
            return [delivery for delivery in free if delivery in gone or delivery.status.lost]

        locked: list[Delivery] = []
        if subscriber.careful:
            locked, stale = subscriber.acknowledger.settle_unlocked([*deliveries, *starting], ack)
            subscriber.careful = bool(locked)
        else:
            stale = list(ack([*deliveries, *starting]))
        self._log_stale(subscriber, [d for d in deliveries if d in stale], "ack")
        self._remove_settled(acks, locked)
        self.counts["ack"] += sum(delivery.status.settled_by == "ack" for delivery in deliveries)
        return locked

    def _fail(self, subscriber: Subscriber, alike: list[Outcome]) -> None:
        """Settle failures that have the same verdict."""
        deliveries, verdict = [outcome.delivery for outcome in alike], alike[0].verdict

        def settle(free: list[Delivery]) -> list[Delivery]:
            """Apply the verdict. Return the deliveries that no longer belong to this subscriber."""
            try:
                if len(free) == 1:
                    verdict.settle(free[0])
                else:
                    error = verdict.error if verdict.verb == "nack" else None
                    subscriber.acknowledger.nack_or_postpone(free, verdict.delay, error)
            except StaleDelivery as error:
                return list(error.stale)
            return []

        locked: list[Delivery] = []
        if alike[0].overdue or subscriber.careful:
            try:
                locked, stale = subscriber.acknowledger.settle_unlocked(deliveries, settle)
            except DatabaseError as error:
                if not (alike[0].overdue and errors.is_locked(error)):
                    raise
                locked, stale = deliveries, []  # ``after_failure`` needs a row that the handler has locked.
        else:
            stale = settle(deliveries)
        self._log_stale(subscriber, stale, verdict.verb)
        for delivery in deliveries:
            if delivery not in stale and delivery not in locked:
                self._log(self.handlers[subscriber], delivery, verdict)
        self._remove_settled(alike, locked)

    def _remove_settled(self, outcomes: Sequence[Outcome], locked: Sequence[Delivery]) -> None:
        """Remove settled outcomes. Outcomes of locked rows are settled again after ``LOCKED_FOR`` seconds."""
        settled = {id(outcome) for outcome in outcomes if outcome.delivery not in locked}
        self.unsettled = [o for o in self.unsettled if id(o) not in settled]
        for outcome in outcomes:
            self._locked.pop(id(outcome), None)
            if outcome.delivery in locked:
                self._locked[id(outcome)] = time.monotonic() + LOCKED_FOR

    def _log_stale(self, subscriber: Subscriber, stale: list[Delivery], verb: str) -> None:
        if stale:
            logger.warning(
                "delivery was stale: %s: %s", self.handlers[subscriber].name, StaleDelivery(stale, verb),
                extra=subscriber.state.log_fields("stale"),
            )  # fmt: skip

    def _log(self, handler: Handler, delivery: Delivery, verdict: Verdict) -> None:
        """Count a failure, and log it unless it is postponed."""
        dead = delivery.status.dead_lettered
        self.counts["dead-letter" if dead else verdict.verb] += 1
        if dead or verdict.verb == "nack":
            what = "dead-lettered" if dead else f"again in {verdict.delay:.3g} s"
            # The error may contain text from the message.
            first = on_a_line(verdict.error.partition("\n")[0])
            logger.warning(
                "attempt failed: %s: %s@%s attempt %s, %s: %s",
                handler.name, delivery.topic, delivery.offset, delivery.attempt, what, first,
                extra=delivery.status.acknowledger.state.log_fields(
                    "dead_lettered" if dead else "retried", offset=delivery.offset, id=delivery.id, key=delivery.key,
                    attempt=delivery.attempt, error=first, **({} if dead else {"retry_in": verdict.delay}),
                ),
            )  # fmt: skip

    def due_in(self) -> float:
        """Return the seconds until ``keep_visible`` is due."""
        return max(self._visible_at - time.monotonic(), 0)

    def keep_visible(self) -> None:
        """Extend deliveries in flight, but not those of atomic handlers: their transactions may have read the row."""
        now = time.monotonic()
        if now < self._visible_at:
            return
        self._visible_at = now + min(h.visible_ms for h in self.handlers.values()) / 6000
        for subscriber, handler in self.handlers.items():
            soon = subscriber.state.clock.now() + handler.visible_ms * 2 // 3
            aging = [
                d
                for d in subscriber.deliveries()
                if d.status.expires < soon and not (handler.atomic or d.status.atomic)
            ]
            if aging:
                with subscriber.backoff_after_lock_wait():
                    extend_unlocked(subscriber.state, aging, handler.visible_ms)


def _needs_own_transaction(outcome: Outcome) -> bool:
    """Return whether the message must be moved, in a separate transaction: it is dead-lettered or parked."""
    status, verdict = outcome.delivery.status, outcome.verdict
    state = status.acknowledger.state
    last = verdict.verb == "nack" and status.failures + 1 >= state.options.max_attempts
    return verdict.verb == "reject" or last or is_parked(state, round(verdict.delay * 1000))
