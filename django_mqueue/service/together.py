"""Answers for many deliveries at once, and for deliveries whose handlers still run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from django.db.backends.utils import CursorWrapper

from ..exceptions import StaleDelivery
from ..policy.durations import to_ms
from ..store import answers, session
from ..store.answers import Deliveries
from ..store.state import Ticket, ordered
from .answering import Answering
from .delivery import Delivery
from .telling import End


def put_back(
    answering: Answering, deliveries: Sequence[Delivery], delay: float | timedelta, error: str | None
) -> None:
    """``nack`` (None: ``postpone``) for many that have attempts left, in one statement: they come again together.

    Raises ``StaleDelivery`` for those that are not this subscriber's any more; the others are put back.
    """
    context, delay_ms = answering.context, to_ms("delay", delay)
    verb = "postpone" if error is None else "nack"
    todo = [d for d in deliveries if not d.hold.answer]
    failures = {d.hold.ticket: d.hold.failures + (error is not None) for d in todo}
    tickets = ordered(failures)

    def work(cursor: CursorWrapper) -> set[Ticket]:
        mine = Deliveries(context.me, tickets)
        changed = answers.put_back(cursor, mine, delay_ms=delay_ms, failed=error is not None, error=error)
        if changed == len(tickets):
            return set()
        there = answers.look(cursor, mine)
        # Token still theirs, and all as this answer leaves it: put back now, or by an earlier try committed unseen.
        return {ticket for ticket in tickets if there.get(ticket) != (False, False, failures[ticket])}

    stale = session.run(context.using, work) if todo else set()
    put = [d for d in todo if d.hold.ticket not in stale]
    answering._after(lambda: answering._ended(put, verb, delay_ms, End(error, delay_ms)))
    answering._lose(stale)
    if gone := [d for d in deliveries if d.hold.ticket in stale or d.hold.answer not in ("", verb)]:
        raise StaleDelivery(gone, verb)


def if_free(
    answering: Answering,
    deliveries: Sequence[Delivery],
    answer: Callable[[list[Delivery]], Sequence[Delivery]],
) -> list[Delivery]:
    """Call ``answer`` in a transaction for those whose state nobody else has locked: the others.

    The handler of a delivery that is answered for it may hold it locked, in a transaction that it never ends; its
    worker must not wait for it. ``answer`` returns those that turned out to be stale.
    """
    context = answering.context
    tickets = [d.hold.ticket for d in deliveries]

    def work(cursor: CursorWrapper) -> tuple[list[Delivery], Sequence[Delivery]]:
        free = answers.lock_free(cursor, Deliveries(context.me, ordered(tickets)))
        rest = [ticket for ticket in tickets if ticket not in free]
        there = answers.look(cursor, Deliveries(context.me, ordered(rest))) if rest else {}
        open_still = {ticket for ticket, (_, in_flight, _) in there.items() if in_flight}
        locked = [d for d in deliveries if d.hold.ticket in open_still and not d.hold.answer]
        return locked, answer([d for d in deliveries if d not in locked])

    locked, stale = session.run(context.using, work)
    answering._lose({d.hold.ticket for d in stale})
    return locked
