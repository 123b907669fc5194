"""Update the consumer state when the transaction that settles deliveries commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from django.db import transaction

from ...store import acknowledgements
from ...store.acknowledgements import Deliveries
from ...store.connection import session
from ...store.delivery_state import ordered
from ..consumer_state import Context
from ..delivery import Delivery


def after_commit(
    context: Context, deliveries: Sequence[Delivery], note: Callable[[Sequence[Delivery]], object]
) -> None:
    """Call ``note`` with the deliveries when the transaction that settles them commits; never after a rollback.

    Outside a transaction, and with ``eager``, the call happens at once. Django calls no commit hook in a transaction
    that was begun by turning autocommit off. For such a transaction, ``confirm`` reads the result from the database.
    """
    if context.options.eager or not session.in_transaction(context.using):
        note(deliveries)
    elif session.calls_hooks(context.using):
        transaction.on_commit(partial(note, deliveries), using=context.using)
    else:
        with context.lock:
            context.unconfirmed |= {d.hold.ticket: partial(note, [d]) for d in deliveries}


def confirm(context: Context) -> None:
    """Run the waiting callbacks whose transaction has committed. Call this before a claim.

    The database shows it: the delivery has the same token and is no longer in flight.
    """
    if not context.unconfirmed:
        return
    waiting = Deliveries(context.me, ordered(context.unconfirmed))
    there = session.run(context.using, lambda cursor: acknowledgements.look(cursor, waiting))
    for ticket in waiting.tickets:
        found = there.get(ticket)
        open_here = context.flying.get(ticket.offset)
        if found is not None and not found[1]:
            context.unconfirmed.pop(ticket)()
        elif found is None or open_here is None or open_here.hold.ticket != ticket:
            del context.unconfirmed[ticket]  # Settled in the meantime, or no longer owned by this subscriber.
