"""Update the consumer state for deliveries, when the transaction that settles them has committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from django.db import transaction

from ...store.acknowledgements import Deliveries
from ...store.connection import session
from ...store.delivery_state import Receipt
from .. import events
from ..consumer_state import ConsumerState
from ..delivery import Delivery
from ..events import Settlement


def note_settled(
    state: ConsumerState,
    deliveries: Sequence[Delivery],
    verb: str,
    due_in: int | None = None,
    settlement: Settlement | None = None,
) -> None:
    """Update the state for deliveries that ``verb`` has settled, and send signals. ``due_in``: ms until a retry."""
    unsettled = state.note_settled(deliveries, verb, due_in)
    if settlement:
        events.ended(state, unsettled, settlement)


def note_after_commit(
    state: ConsumerState, deliveries: Sequence[Delivery], note: Callable[[Sequence[Delivery]], object]
) -> None:
    """Call ``note`` with the deliveries when the transaction that settles them commits; never after a rollback.

    Outside a transaction, and with ``eager``, the call happens at once. Django calls no commit hook in a transaction
    that was begun by turning autocommit off. For such a transaction, ``confirm`` reads the result.
    """
    if state.options.eager or not session.in_transaction(state.using):
        note(deliveries)
    elif session.calls_hooks(state.using):
        transaction.on_commit(partial(note, deliveries), using=state.using)
    else:
        with state.lock:
            state.unconfirmed |= {d.status.receipt: partial(note, [d]) for d in deliveries}


def confirm(state: ConsumerState) -> None:
    """Run the callbacks in ``unconfirmed`` whose transaction has committed, as the delivery state shows.

    The caller must hold no locks: the callbacks send signals.
    """
    if not state.unconfirmed:
        return
    callbacks = []
    with state.lock:
        there = session.run(state.using, Deliveries(state.holder, state.unconfirmed).states)
        for receipt in sorted(state.unconfirmed):
            found = there.get(receipt)
            open_here = state.in_flight.get(receipt.offset)
            if found is not None and not found.in_flight:
                callbacks.append(state.unconfirmed.pop(receipt))
            elif found is None or open_here is None or open_here.status.receipt != receipt:
                # It was settled in the meantime, or this subscriber no longer owns it.
                del state.unconfirmed[receipt]
    for callback in callbacks:
        callback()


def note_lost(state: ConsumerState, stale: set[Receipt]) -> None:
    """Mark deliveries that this subscriber no longer owns as lost, and forget them.

    Inside a caller's transaction, without ``eager``, only ``check_leases`` is set: a thread that holds the state's lock
    may wait for rows that this transaction has locked.
    """
    if stale:
        state.check_leases = True
        if state.options.eager or not session.in_transaction(state.using):
            state.lose(stale)
