"""Asking for more time within a transaction, without a lock that lasts as long as that one.

A lock on the lease would keep the worker from renewing it, and others from taking it over, for as long as the handler
runs. So the delivery is extended on a connection of its own, in a transaction that ends at once: a compare-and-set on
the delivery's token and the lease's holder, as ever. A former owner changes nothing. What the handler writes is fenced
by the acknowledgement at the end of its transaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from django.db.backends.utils import CursorWrapper

from ..store import answers, session
from ..store.answers import Deliveries
from ..store.beside import second_connection
from ..store.state import Ticket, ordered
from .context import Context

PATIENCE = 2.0
"""Seconds for which a delivery is tried again that another transaction has locked: it is answering it, most likely."""


def extend_beside(context: Context, tickets: Collection[Ticket], visible_ms: int) -> set[Ticket]:
    """Extend deliveries beside the caller's transaction; return those that are not the subscriber's any more.

    Among these are those that the caller's transaction, or another one, has answered and not committed.
    """
    left, stale = set(tickets), set[Ticket]()
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()

    def work(cursor: CursorWrapper) -> tuple[set[Ticket], set[Ticket]]:
        free = answers.lock_free(cursor, Deliveries(context.me, ordered(left)))
        if free:
            answers.extend(cursor, Deliveries(context.me, ordered(free)), visible_ms)
        rest = ordered(left - free)
        return free, answers.mine(cursor, Deliveries(context.me, rest), locking=False) if rest else set()

    with second_connection(context.using) as beside:
        while True:
            extended, locked = session.run(beside, work)
            stale |= left - extended - locked
            left = locked
            if not left or left <= _answered_here(context, left) or time.monotonic() > deadline:
                return stale | left
            pause.wait(0.02)


def _answered_here(context: Context, tickets: set[Ticket]) -> set[Ticket]:
    """Those that the caller's transaction has answered."""
    mine = Deliveries(context.me, ordered(tickets))
    there = session.run(context.using, lambda cursor: answers.look(cursor, mine))
    return {ticket for ticket, (acked, in_flight, _) in there.items() if acked or not in_flight}
