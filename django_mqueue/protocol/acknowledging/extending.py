"""Extend deliveries: move the end of their visibility timeout while their handlers run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from django.db.backends.utils import CursorWrapper

from ...exceptions import StaleDelivery
from ...policy.durations import to_ms
from ...store.acknowledgements import Deliveries
from ...store.connection import session
from ...store.connection.second_connection import second_connection
from ...store.delivery_state import Receipt
from ..consumer_state import ConsumerState
from ..delivery import Delivery
from .after_commit import note_lost

LOCKED_WAIT = 2.0
"""Seconds for which ``extend`` retries a locked delivery. The other transaction probably settles it."""


def extend(state: ConsumerState, deliveries: Sequence[Delivery], seconds: float | timedelta) -> bool:
    """Set the visibility timeout of deliveries to ``seconds`` from now, in one statement.

    Inside a caller's transaction a second connection does it, except with ``eager``. Raises ``StaleDelivery`` with
    the deliveries that are settled, that this subscriber no longer owns, or that stay locked; the others are extended.
    """
    visible_ms = to_ms("seconds", seconds)
    todo = [d for d in deliveries if not d.status.settled_by]

    def work(cursor: CursorWrapper) -> set[Receipt]:
        owned = Deliveries(state.holder, [d.status.receipt for d in todo])
        if owned.extend(cursor, visible_ms) == len(todo):
            return set()
        return set(owned.receipts) - owned.in_flight_receipts(cursor, locking=True)

    if todo and session.in_transaction(state.using) and not state.options.eager:
        stale = _extend_outside(state, {d.status.receipt for d in todo}, visible_ms)
    else:
        stale = session.run(state.using, work) if todo else set()
    for delivery in todo:
        if delivery.status.receipt not in stale:
            delivery.status.expires = state.clock.now() + visible_ms
    state.leave_quarantine([d for d in todo if d.status.receipt not in stale])
    note_lost(state, stale)
    if gone := [d for d in deliveries if d.status.settled_by or d.status.receipt in stale]:
        raise StaleDelivery(gone, "extend")
    return True


def _extend_outside(state: ConsumerState, left: set[Receipt], visible_ms: int) -> set[Receipt]:
    """Extend deliveries on a second connection. Return the receipts that are stale or stay locked.

    A lock in the caller's transaction would prevent the lease's renewal, and a takeover, while the handler runs.
    """
    stale = set[Receipt]()
    deadline = time.monotonic() + LOCKED_WAIT

    def work(cursor: CursorWrapper) -> tuple[set[Receipt], set[Receipt]]:
        free = Deliveries(state.holder, left).lock_unlocked(cursor)
        free.extend(cursor, visible_ms)
        extended = set(free.receipts)
        return extended, Deliveries(state.holder, left - extended).in_flight_receipts(cursor, locking=False)

    with second_connection(state.using) as second:
        while True:
            extended, locked = session.run(second, work)
            stale |= left - extended - locked
            left = locked
            there = session.run(state.using, Deliveries(state.holder, left).states) if left else {}
            settled_here = {r for r, found in there.items() if found.acked or not found.in_flight}
            if left <= settled_here or time.monotonic() > deadline:
                return stale | left
            time.sleep(0.02)


def extend_unlocked(state: ConsumerState, deliveries: Sequence[Delivery], visible_ms: int) -> None:
    """Extend the deliveries that no other transaction has locked. Never wait: leases must be renewed."""

    def work(cursor: CursorWrapper) -> list[Receipt]:
        free = Deliveries(state.holder, [d.status.receipt for d in deliveries]).lock_unlocked(cursor)
        free.extend(cursor, visible_ms)
        return free.receipts

    extended = session.run(state.using, work)
    for delivery in deliveries:
        if delivery.status.receipt in extended:
            delivery.status.expires = state.clock.now() + visible_ms
