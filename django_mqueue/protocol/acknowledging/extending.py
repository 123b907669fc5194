"""Extend deliveries inside a caller's transaction, without locks that last until its end.

A lock on the lease would prevent its renewal, and a takeover by other workers, while the handler runs. So a second
connection extends the delivery in a short transaction. Its statement compares the delivery token and the lease's
holder, so that a former owner changes nothing. The ack at the end of the caller's transaction fences the writes of the
handler.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from django.db.backends.utils import CursorWrapper

from ...store import acknowledgements
from ...store.acknowledgements import Deliveries
from ...store.connection import session
from ...store.connection.second_connection import second_connection
from ...store.delivery_state import Receipt, ordered
from ..consumer_state import Context

PATIENCE = 2.0
"""Seconds for which a locked delivery is tried again. The other transaction probably settles it."""


def extend_beside(context: Context, tickets: Collection[Receipt], visible_ms: int) -> set[Receipt]:
    """Extend deliveries to ``visible_ms`` from now on a second connection. Return the receipts that are stale.

    These include deliveries that the caller's transaction has settled. They also include deliveries that another
    transaction has locked for longer than ``PATIENCE``.
    """
    left, stale = set(tickets), set[Receipt]()
    deadline = time.monotonic() + PATIENCE

    def work(cursor: CursorWrapper) -> tuple[set[Receipt], set[Receipt]]:
        free = acknowledgements.lock_free(cursor, Deliveries(context.me, ordered(left)))
        if free:
            acknowledgements.extend(cursor, Deliveries(context.me, ordered(free)), visible_ms)
        rest = ordered(left - free)
        return free, acknowledgements.mine(
            cursor, Deliveries(context.me, rest), locking=False
        ) if rest else set()

    with second_connection(context.using) as beside:
        while True:
            extended, locked = session.run(beside, work)
            stale |= left - extended - locked
            left = locked
            if not left or left <= _answered_here(context, left) or time.monotonic() > deadline:
                return stale | left
            time.sleep(0.02)


def _answered_here(context: Context, tickets: set[Receipt]) -> set[Receipt]:
    """Return the receipts of deliveries that the caller's transaction has settled."""
    mine = Deliveries(context.me, ordered(tickets))
    there = session.run(context.using, lambda cursor: acknowledgements.look(cursor, mine))
    return {ticket for ticket, (acked, in_flight, _) in there.items() if acked or not in_flight}
