"""Settle deliveries (ack, nack, reject, postpone) and extend them.

Each statement compares the delivery token and the lease's holder, so that a former owner changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial

from django.db import Error
from django.db.backends.utils import CursorWrapper

from ... import conf
from ...exceptions import StaleDelivery
from ...policy.durations import to_ms
from ...policy.ids import new_token
from ...store import acknowledgements, dead_letter_copies
from ...store.acknowledgements import Deliveries
from ...store.connection import session
from ...store.delivery_state import Receipt, ordered
from ...store.failures import clip
from .. import events
from ..consumer_state import Context
from ..delivery import Delivery
from ..events import Outcome
from .after_commit import after_commit
from .extending import extend_beside
from .parked_retries import is_long, set_aside
from .replying import report_failure

WORKER_DIED = "the worker died, or lost its lease, each time it handled this message"
ENDING = ("ack", "nack", "reject", "postpone")


class Acknowledger:
    """Settles the deliveries of one subscriber.

    Any thread may call the methods. Each thread uses its own database connection.
    """

    def __init__(self, context: Context) -> None:
        self.context = context

    def ack(
        self, deliveries: Sequence[Delivery], starting: Sequence[Delivery] = (), *, whole: bool = False
    ) -> bool:
        """Acknowledge deliveries in one statement, and mark ``starting`` as handed to handlers.

        ``starting``: deliveries that were claimed ahead and start now. Stale ones raise nothing; they are marked as
        lost. Raises ``StaleDelivery`` with the deliveries that this subscriber no longer owns; the others are
        acknowledged.

        ``whole``: acknowledge all or none, because the caller's transaction rolls back on the error. An earlier commit
        whose result was lost may have acknowledged a delivery. The call then also raises ``StaleDelivery``.
        """
        context = self.context
        todo = [d for d in deliveries if d.hold.answer != "ack"]
        ended = [d for d in todo if d.hold.answer]
        todo = [d for d in todo if not d.hold.answer]

        def work(cursor: CursorWrapper) -> set[Receipt]:
            stale = self._finish(cursor, todo, whole=whole) if todo else set()
            if starting:
                tickets = ordered(d.hold.ticket for d in starting)
                if acknowledgements.mark_handed(cursor, Deliveries(context.me, tickets)) < len(tickets):
                    stale |= self._not_mine(cursor, tickets)
            return stale

        stale = session.run(context.using, work) if todo or starting else set()
        if whole and (stale or ended):
            raise StaleDelivery([d for d in todo if d.hold.ticket in stale] + ended, "ack")
        after_commit(context, [d for d in todo if d.hold.ticket not in stale], self.note_ack)
        self._lose(stale)
        for delivery in starting:
            delivery.hold.handed = True
        gone = [d for d in todo if d.hold.ticket in stale] + ended
        if gone:
            raise StaleDelivery(gone, "ack")
        return True

    def note_ack(self, deliveries: Sequence[Delivery]) -> None:
        """Update the consumer state for acks that a transaction has committed together with other changes."""
        self._ended(deliveries, "ack", told=Outcome())

    def reconcile_acks(self, deliveries: Sequence[Delivery]) -> None:
        """Reconcile acks whose commit result is unknown.

        If the database shows them as committed, the consumer state is updated. Later messages then no longer wait for
        these. Does nothing inside a transaction, and ignores database errors.
        """
        using, tickets = self.context.using, ordered(d.hold.ticket for d in deliveries)
        if session.in_transaction(using):
            return
        with suppress(Error):
            there = session.run(
                using, lambda cursor: acknowledgements.look(cursor, Deliveries(self.context.me, tickets))
            )
            self.note_ack(
                [d for d in deliveries if there.get(d.hold.ticket) == (True, False, d.hold.failures)]
            )

    def nack(self, delivery: Delivery, delay: float | timedelta, error: str) -> bool:
        delay_ms = to_ms("delay", delay)
        _check_text("error", error)
        if self._repeated(delivery, "nack"):
            return True
        failures = delivery.hold.failures + 1
        if failures >= self.context.options.max_attempts:
            return self._give_up(delivery, "nack", error, failures)
        told = Outcome(error, delay_ms)
        if is_long(self.context, delay_ms):
            return self._answer(delivery, "nack", set_aside(self.context, delay_ms, error), failures, told)

        def back(cursor: CursorWrapper, tickets: Sequence[Receipt]) -> int:
            mine = Deliveries(self.context.me, tickets)
            return acknowledgements.put_back(cursor, mine, delay_ms=delay_ms, failed=True, error=error)

        return self._answer(delivery, "nack", back, failures, told, due_in=delay_ms)

    def reject(self, delivery: Delivery, reason: str) -> bool:
        _check_text("reason", reason)
        if self._repeated(delivery, "reject"):
            return True
        return self._give_up(delivery, "reject", reason, delivery.hold.failures + 1)

    def postpone(self, delivery: Delivery, delay: float | timedelta) -> bool:
        delay_ms = to_ms("delay", delay)
        if self._repeated(delivery, "postpone"):
            return True
        told = Outcome(None, delay_ms)
        if is_long(self.context, delay_ms):
            aside = set_aside(self.context, delay_ms, None)
            return self._answer(delivery, "postpone", aside, delivery.hold.failures, told)

        def back(cursor: CursorWrapper, tickets: Sequence[Receipt]) -> int:
            return acknowledgements.put_back(
                cursor, Deliveries(self.context.me, tickets), delay_ms=delay_ms, failed=False
            )

        return self._answer(delivery, "postpone", back, delivery.hold.failures, told, due_in=delay_ms)

    def extend(self, deliveries: Sequence[Delivery], seconds: float | timedelta) -> bool:
        """Set the visibility timeout of deliveries to ``seconds`` from now, in one statement.

        Inside a caller's transaction a second connection does it (see ``extending``), except with ``eager``. It takes
        effect at once, and the caller's transaction holds no locks for it. Raises ``StaleDelivery`` with the deliveries
        that are settled or that this subscriber no longer owns; the others are extended.
        """
        visible_ms = to_ms("seconds", seconds)
        context = self.context
        todo = [d for d in deliveries if not d.hold.answer]

        def work(cursor: CursorWrapper) -> set[Receipt]:
            tickets = ordered(d.hold.ticket for d in todo)
            moved = acknowledgements.extend(cursor, Deliveries(context.me, tickets), visible_ms)
            return set() if moved == len(tickets) else self._not_mine(cursor, tickets)

        if todo and session.in_transaction(context.using) and not context.options.eager:
            stale = extend_beside(context, {d.hold.ticket for d in todo}, visible_ms)
        else:
            stale = session.run(context.using, work) if todo else set()
        for delivery in todo:
            if delivery.hold.ticket not in stale:
                delivery.hold.expires = context.clock.now() + visible_ms
        self._take_back([d for d in todo if d.hold.ticket not in stale])
        self._lose(stale)
        gone = [d for d in deliveries if d.hold.answer or d.hold.ticket in stale]
        if gone:
            raise StaleDelivery(gone, "extend")
        return True

    def crowd_again(self, delivery: Delivery) -> bool:
        """End the exclusive run of a quarantined delivery: other messages may run at the same time.

        If the worker dies later, that does not count as a failure of this message. Returns False, and changes nothing,
        while another transaction has its row locked.
        """
        mine = Deliveries(self.context.me, [delivery.hold.ticket])

        def work(cursor: CursorWrapper) -> bool:
            if acknowledgements.lock_free(cursor, mine):
                acknowledgements.end_quarantine(cursor, mine)
                return True
            return not acknowledgements.mine(cursor, mine, locking=False)

        done = session.run(self.context.using, work)
        if done:
            delivery.hold.alone = False
        return done

    def bury(self, ticket: Receipt, error: str, failures: int) -> bool | None:
        """Dead-letter a message that no handler has. Return False if this subscriber does not own it.

        ``failures``: the number of failed attempts that the dead letter records. Returns None, and changes nothing,
        while another transaction has the row locked.
        """
        mine = Deliveries(self.context.me, [ticket])

        def work(cursor: CursorWrapper) -> bool | None:
            if not acknowledgements.lock_free(cursor, mine) and acknowledgements.mine(
                cursor, mine, locking=False
            ):
                return None
            return not self._finish_dead(cursor, ticket, error, failures, new_token())

        buried = session.run(self.context.using, work)
        if buried is None:
            return None
        with self.context.lock:
            self.context.mark_dirty(ticket.partition)
        if buried:
            events.buried(self.context, ticket, failures, error)
        return buried

    def _give_up(self, delivery: Delivery, verb: str, error: str, failures: int) -> bool:
        def work(cursor: CursorWrapper, tickets: Sequence[Receipt]) -> int:
            return 1 - len(self._finish_dead(cursor, tickets[0], error, failures))

        answered = self._answer(delivery, verb, work, failures, Outcome(error))
        delivery.hold.dead_lettered = True
        return answered

    def _finish_dead(
        self, cursor: CursorWrapper, ticket: Receipt, error: str, failures: int, token: int | None = None
    ) -> set[Receipt]:
        """Finish a message for this group and copy it to the dead-letter topic, in one transaction.

        Returns a set with the receipt if it is stale, otherwise an empty set.
        """
        context, text = self.context, clip(error)
        if not acknowledgements.finish(cursor, Deliveries(context.me, [ticket]), text, token):
            # An ack or an earlier call of this method has finished it. The failure count shows which.
            return self._unfinished(cursor, {ticket: failures})
        dead_topic = conf.dead_letter_topic(context.topic)
        letter = dead_letter_copies.copy(cursor, ticket.offset, context.group, dead_topic, failures, text)
        if letter is not None:
            report_failure(cursor, context.topic, ticket.offset, letter, context.group, text)
        return set()

    def _finish(self, cursor: CursorWrapper, todo: Sequence[Delivery], *, whole: bool) -> set[Receipt]:
        failures = {d.hold.ticket: d.hold.failures for d in todo}
        tickets, skipped = ordered(failures), [d.offset for d in todo if d.hold.skipped]
        done = acknowledgements.finish(cursor, Deliveries(self.context.me, tickets), skipped=skipped)
        if done == len(tickets):
            return set()
        stale = self._unfinished(cursor, failures)
        # If an earlier transaction acknowledged it, its effects are stored. This one must not store them again.
        return stale or set(tickets) if whole else stale

    def _unfinished(self, cursor: CursorWrapper, failures: Mapping[Receipt, int]) -> set[Receipt]:
        """Return the receipts of deliveries that no earlier try has finished.

        An earlier try may have committed, and its result may have been lost. ``failures``: the failure count after such
        a try. It distinguishes an ack from a rejection.
        """
        there = acknowledgements.look(cursor, Deliveries(self.context.me, ordered(failures)))
        return {t for t in failures if there.get(t) != (True, False, failures[t])}

    def _answer(
        self,
        delivery: Delivery,
        verb: str,
        change: Callable[[CursorWrapper, Sequence[Receipt]], int],
        failures: int,
        told: Outcome,
        due_in: int | None = None,
    ) -> bool:
        """Apply ``change`` to one delivery and update the consumer state, or raise ``StaleDelivery``.

        ``failures``: its failure count after the change. ``told``: the outcome that signals report. ``due_in``:
        milliseconds until the retry, or None if the message is finished.
        """
        ticket = delivery.hold.ticket

        def work(cursor: CursorWrapper) -> bool:
            if change(cursor, [ticket]):
                return True
            there = acknowledgements.look(cursor, Deliveries(self.context.me, [ticket]))
            # Same token, and the state that this call produces: an earlier try committed, and its result was lost.
            return there.get(ticket) == (due_in is None, False, failures)

        if not session.run(self.context.using, work):
            self._lose({ticket})
            raise StaleDelivery([delivery], verb)
        after_commit(self.context, [delivery], partial(self._ended, verb=verb, due_in=due_in, told=told))
        return True

    def _not_mine(self, cursor: CursorWrapper, tickets: Sequence[Receipt]) -> set[Receipt]:
        return set(tickets) - acknowledgements.mine(cursor, Deliveries(self.context.me, tickets))

    def _repeated(self, delivery: Delivery, verb: str) -> bool:
        """Return whether ``verb`` has settled the delivery before. Raise ``StaleDelivery`` if another verb has."""
        if delivery.hold.answer in ("", verb):
            return bool(delivery.hold.answer)
        raise StaleDelivery([delivery], verb)

    def _ended(
        self,
        deliveries: Sequence[Delivery],
        verb: str,
        due_in: int | None = None,
        told: Outcome | None = None,
    ) -> None:
        context = self.context
        with context.lock:
            news = [d for d in deliveries if not d.hold.answer]
            for delivery in deliveries:
                ticket, delivery.hold.answer = delivery.hold.ticket, verb
                context.unconfirmed.pop(ticket, None)
                mine = context.flying.get(ticket.offset)
                if mine is None or mine.hold.ticket.token != ticket.token:
                    continue
                del context.flying[ticket.offset]
                if partition := context.partitions.get(ticket.partition):
                    partition.in_flight.discard(ticket.offset)
                    if due_in is None:
                        partition.uncounted.pop(ticket.offset, None)
                        context.mark_dirty(ticket.partition)
                    else:
                        context.put_back(ticket.partition, ticket.offset, context.clock.now() + due_in)
                    context.touch(partition)
        if told:
            events.ended(context, news, told)

    def _take_back(self, deliveries: Sequence[Delivery]) -> None:
        """Move expired deliveries from quarantine back to in flight: their holder has extended them."""
        context = self.context
        with context.lock:
            for delivery in deliveries:
                ticket = delivery.hold.ticket
                partition = context.partitions.get(ticket.partition)
                late = [s for s in partition.suspects if s.ticket == ticket] if partition else []
                if partition and late:
                    partition.suspects.remove(late[0])
                    partition.in_flight.add(ticket.offset)
                    context.flying[ticket.offset] = delivery

    def _lose(self, stale: set[Receipt]) -> None:
        """Mark deliveries that this subscriber no longer owns as lost, and forget them.

        Inside a caller's transaction only ``doubt`` is set, and the next lease renewal finds them. That transaction has
        locked rows. A thread that holds ``context.lock`` may wait for these rows, so taking the lock could deadlock.
        """
        context = self.context
        if not stale:
            return
        context.doubt = True
        if session.in_transaction(context.using) and not context.options.eager:
            return
        with context.lock:
            for ticket in stale:
                mine = context.flying.get(ticket.offset)
                if mine and mine.hold.ticket == ticket:
                    del context.flying[ticket.offset]
                    mine.hold.lost = True
                    if partition := context.partitions.get(ticket.partition):
                        partition.in_flight.discard(ticket.offset)
                        # Another thread may have settled it, and now finds no delivery to update: read the state again.
                        partition.waiting_more = True
                        context.stale_waiting[ticket.partition] = None
                        context.mark_dirty(ticket.partition)
                        context.touch(partition)


def _check_text(argument: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a str, not {type(value).__name__}")
