"""Settle or extend many deliveries at once, also while their handlers run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from django.db.backends.utils import CursorWrapper

from ...exceptions import StaleDelivery
from ...policy.durations import to_ms
from ...store import acknowledgements
from ...store.acknowledgements import Deliveries
from ...store.connection import session
from ...store.delivery_state import Receipt, ordered
from ..delivery import Delivery
from ..events import Outcome
from .after_commit import after_commit
from .single import Acknowledger


def put_back(
    answering: Acknowledger, deliveries: Sequence[Delivery], delay: float | timedelta, error: str | None
) -> None:
    """Nack deliveries that have attempts left, in one statement. If ``error`` is None, postpone them.

    All are due again after ``delay`` (seconds or a ``timedelta``). Raises ``StaleDelivery`` with the deliveries that
    this subscriber no longer owns; the others are put back.
    """
    context, delay_ms = answering.context, to_ms("delay", delay)
    verb = "postpone" if error is None else "nack"
    todo = [d for d in deliveries if not d.hold.answer]
    failures = {d.hold.ticket: d.hold.failures + (error is not None) for d in todo}
    tickets = ordered(failures)

    def work(cursor: CursorWrapper) -> set[Receipt]:
        mine = Deliveries(context.me, tickets)
        changed = acknowledgements.put_back(
            cursor, mine, delay_ms=delay_ms, failed=error is not None, error=error
        )
        if changed == len(tickets):
            return set()
        there = acknowledgements.look(cursor, mine)
        # Same token, and the state that this call produces: put back now, or by an earlier try with a lost result.
        return {ticket for ticket in tickets if there.get(ticket) != (False, False, failures[ticket])}

    stale = session.run(context.using, work) if todo else set()
    put = [d for d in todo if d.hold.ticket not in stale]
    note = partial(answering._ended, verb=verb, due_in=delay_ms, told=Outcome(error, delay_ms))
    after_commit(context, put, note)
    answering._lose(stale)
    if gone := [d for d in deliveries if d.hold.ticket in stale or d.hold.answer not in ("", verb)]:
        raise StaleDelivery(gone, verb)


def if_free(
    answering: Acknowledger,
    deliveries: Sequence[Delivery],
    answer: Callable[[list[Delivery]], Sequence[Delivery]],
) -> tuple[list[Delivery], list[Delivery]]:
    """Call ``answer`` in a transaction for the deliveries that no other transaction has locked.

    A handler that ran too long may hold a lock on its delivery, in a transaction that never ends. A ``reset`` that is
    not committed also holds locks. The worker must not wait for them. ``answer`` returns the deliveries that are stale.
    Returns (locked deliveries, stale deliveries).
    """
    context = answering.context
    tickets = [d.hold.ticket for d in deliveries]

    def work(cursor: CursorWrapper) -> tuple[list[Delivery], list[Delivery]]:
        free = acknowledgements.lock_free(cursor, Deliveries(context.me, ordered(tickets)))
        rest = Deliveries(context.me, ordered(ticket for ticket in tickets if ticket not in free))
        there = acknowledgements.look(cursor, rest) if rest.tickets else {}
        taken = {ticket for ticket, (_, in_flight, _) in there.items() if in_flight}
        busy = acknowledgements.mine(cursor, rest, locking=False) & taken if taken else set()
        locked = [d for d in deliveries if d.hold.ticket in busy and not d.hold.answer]
        lost = [d for d in deliveries if d.hold.ticket in taken - busy and not d.hold.answer]
        given = [d for d in deliveries if d not in locked and d not in lost]
        return locked, [*lost, *(answer(given) if given else ())]

    locked, stale = session.run(context.using, work)
    answering._lose({d.hold.ticket for d in stale})
    return locked, stale


def prolong(answering: Acknowledger, deliveries: Sequence[Delivery], visible_ms: int) -> None:
    """Extend the deliveries that no other transaction has locked, to ``visible_ms`` from now.

    A handler, or the thread that settles a delivery, may have locked the others. If the worker waited for them, it
    could not renew its leases.
    """
    context = answering.context

    def work(cursor: CursorWrapper) -> set[Receipt]:
        free = acknowledgements.lock_free(
            cursor, Deliveries(context.me, ordered(d.hold.ticket for d in deliveries))
        )
        if free:
            acknowledgements.extend(cursor, Deliveries(context.me, ordered(free)), visible_ms)
        return free

    extended = session.run(context.using, work)
    for delivery in deliveries:
        if delivery.hold.ticket in extended:
            delivery.hold.expires = context.clock.now() + visible_ms


def give_back(answering: Acknowledger, deliveries: Sequence[Delivery]) -> None:
    """Put back deliveries that reached no handler, and count no attempt. Skip locked ones."""
    if not deliveries:
        return
    context = answering.context

    def work(cursor: CursorWrapper) -> None:
        free = acknowledgements.lock_free(
            cursor, Deliveries(context.me, ordered(d.hold.ticket for d in deliveries))
        )
        if free:
            acknowledgements.put_back(cursor, Deliveries(context.me, ordered(free)), delay_ms=0, failed=False)

    session.run(context.using, work)
    after_commit(context, deliveries, partial(answering._ended, verb="postpone", due_in=0))
