"""Memory of answers follows the database: it changes when the transaction of an answer is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from django.db import transaction

from ..store import answers, session
from ..store.answers import Deliveries
from ..store.state import ordered
from .context import Context
from .delivery import Delivery


def after_commit(
    context: Context, deliveries: Sequence[Delivery], note: Callable[[Sequence[Delivery]], object]
) -> None:
    """Call ``note`` with deliveries once their answer is committed; never, if it is rolled back.

    Django calls no hook at the end of a transaction begun by turning autocommit off: ``confirm`` reads its outcome.
    """
    if context.options.eager or not session.in_transaction(context.using):
        note(deliveries)
    elif session.calls_hooks(context.using):
        transaction.on_commit(partial(note, deliveries), using=context.using)
    else:
        with context.lock:
            context.unconfirmed |= {d.hold.ticket: partial(note, [d]) for d in deliveries}


def confirm(context: Context) -> None:
    """Note those unconfirmed answers that the database shows as committed. Call this before a claim."""
    if not context.unconfirmed:
        return
    waiting = Deliveries(context.me, ordered(context.unconfirmed))
    there = session.run(context.using, lambda cursor: answers.look(cursor, waiting))
    for ticket in waiting.tickets:
        found = there.get(ticket)
        open_here = context.flying.get(ticket.offset)
        if found is not None and not found[1]:
            context.unconfirmed.pop(ticket)()
        elif found is None or open_here is None or open_here.hold.ticket != ticket:
            del context.unconfirmed[ticket]  # Answered since, or no longer this subscriber's.
