"""Answers to deliveries, in ``queue_delivery_state``: each a compare-and-set on the token and on the lease's holder.

One statement for any number of deliveries. The state's table stands first in the joins that change it, so that the
servers update while they read; from any other place they would go through a temporary table, and MariaDB
10.11 crashes when it cannot create that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from ..policy.outcomes import ASIDE_AT
from . import failures
from .dialect import NOW_MS, flat, marks, sharing, values_table
from .leases import Holder
from .state import Ticket


@dataclass(frozen=True)
class Deliveries:
    """Deliveries of one holder, in the order in which their rows are locked."""

    me: Holder
    tickets: Sequence[Ticket]

    def update(self, cursor: CursorWrapper, assignments: str, values: Sequence[Any] = ()) -> int:
        """Change those that are open and whose lease is the holder's: how many were."""
        one = "(s.partition_key = %s AND s.message_offset = %s AND s.delivery_token = %s)"
        cursor.execute(
            "UPDATE queue_delivery_state s FORCE INDEX (PRIMARY) STRAIGHT_JOIN queue_partition_leases l"
            " FORCE INDEX (queue_leases_partition) ON l.consumer_group = s.consumer_group AND l.topic = s.topic"
            f" AND l.partition_key = s.partition_key AND l.holder = %s SET {assignments}"
            f" WHERE s.consumer_group = %s AND s.topic = %s AND ({' OR '.join([one] * len(self.tickets))})"
            " AND s.acked = 0 AND s.in_flight = 1",
            [self.me.incarnation, *values, self.me.group, self.me.topic, *self.values()],
        )
        return int(cursor.rowcount)

    def values(self) -> list[Any]:
        return flat((t.partition, t.offset, t.token) for t in self.tickets)


def finish(
    cursor: CursorWrapper,
    deliveries: Deliveries,
    error: str | None = None,
    token: int | None = None,
    *,
    skipped: Sequence[int] = (),
    is_aside: bool = False,
) -> int:
    """Mark as done: how many were the holder's. ``error`` is kept with a message that ends by failing.

    ``token`` takes the place of theirs: no late answer of whoever was given them is taken for this. ``skipped``:
    offsets of those that a filter kept from the handler. ``is_aside``: it comes again from elsewhere.
    """
    add, values = failures.appended(error)
    if error is not None:
        add += ", s.failure_count = s.failure_count + 1"
    if token is not None:
        add, values = f"{add}, s.delivery_token = %s", [*values, token]
    if skipped:
        add, values = f"{add}, s.handed = s.message_offset NOT IN ({marks(skipped)})", [*values, *skipped]
    if is_aside:
        add = f"{add}, s.invisible_until = {ASIDE_AT}"
    return deliveries.update(cursor, f"s.acked = 1, s.in_flight = 0, s.acked_at = {NOW_MS}{add}", values)


def put_back(
    cursor: CursorWrapper, deliveries: Deliveries, *, delay_ms: int, failed: bool, error: str | None = None
) -> int:
    """Deliver again after ``delay_ms``: how many were the holder's.

    ``failed`` counts an attempt; else the delivery counts as none at all.
    """
    add, values = failures.appended(error)
    counts = "s.failure_count = s.failure_count + 1" if failed else "s.handed = 0"
    return deliveries.update(
        cursor,
        f"{counts}, s.in_flight = 0, s.alone = 0, s.invisible_until = {NOW_MS} + %s{add}",
        [delay_ms, *values],
    )


def extend(cursor: CursorWrapper, deliveries: Deliveries, visible_ms: int) -> int:
    """Keep invisible for ``visible_ms`` from now: how many were the holder's."""
    return deliveries.update(cursor, f"s.invisible_until = {NOW_MS} + %s", [visible_ms])


_TICKET = "(s.partition_key = %s AND s.message_offset = %s AND s.delivery_token = %s)"


def lock_free(cursor: CursorWrapper, deliveries: Deliveries) -> set[Ticket]:
    """Lock the open ones of the holder, and their leases in share mode; skip what another transaction has locked.

    Returns those that are locked by this transaction now.
    """
    which = " OR ".join([_TICKET] * len(deliveries.tickets))
    cursor.execute(
        "SELECT s.partition_key, s.message_offset, s.delivery_token"
        " FROM queue_delivery_state s FORCE INDEX (PRIMARY)"
        f" WHERE s.consumer_group = %s AND s.topic = %s AND ({which})"
        " AND s.acked = 0 AND s.in_flight = 1 FOR UPDATE SKIP LOCKED",
        [deliveries.me.group, deliveries.me.topic, *deliveries.values()],
    )
    found = {Ticket(p, int(o), int(t)) for p, o, t in cursor.fetchall()}
    if not found:
        return found
    names = sorted({ticket.partition for ticket in found})
    cursor.execute(
        "SELECT partition_key FROM queue_partition_leases FORCE INDEX (queue_leases_partition)"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({marks(names)}) AND holder = %s"
        f" {sharing(cursor.db.alias)}",
        [deliveries.me.group, deliveries.me.topic, *names, deliveries.me.incarnation],
    )
    held = {partition for (partition,) in cursor.fetchall()}
    return {ticket for ticket in found if ticket.partition in held}


def mine(cursor: CursorWrapper, deliveries: Deliveries, *, locking: bool = True) -> set[Ticket]:
    """Return those that are open and whose lease is the holder's.

    ``locking``: as they are now, with locks until the transaction ends. Without them a caller's transaction may see
    them as they were at its first read.
    """
    which = " OR ".join([_TICKET] * len(deliveries.tickets))
    cursor.execute(
        "SELECT s.partition_key, s.message_offset, s.delivery_token"
        " FROM queue_delivery_state s FORCE INDEX (PRIMARY) STRAIGHT_JOIN queue_partition_leases l"
        " FORCE INDEX (queue_leases_partition) ON l.consumer_group = s.consumer_group AND l.topic = s.topic"
        " AND l.partition_key = s.partition_key AND l.holder = %s"
        f" WHERE s.consumer_group = %s AND s.topic = %s AND ({which})"
        f" AND s.acked = 0 AND s.in_flight = 1{' LOCK IN SHARE MODE' if locking else ''}",
        [deliveries.me.incarnation, deliveries.me.group, deliveries.me.topic, *deliveries.values()],
    )
    return {Ticket(p, int(o), int(t)) for p, o, t in cursor.fetchall()}


def hand_over(cursor: CursorWrapper, deliveries: Deliveries) -> int:
    """Note that handlers now start on what had been claimed ahead: how many were the holder's."""
    return deliveries.update(cursor, "s.handed = 1")


def end_solitude(cursor: CursorWrapper, deliveries: Deliveries) -> int:
    """Others run beside this suspect again: its worker's death would no longer be its doing."""
    return deliveries.update(cursor, "s.alone = 0")


def look(cursor: CursorWrapper, deliveries: Deliveries) -> dict[Ticket, tuple[bool, bool, int]]:
    """(acked, in flight, failures) of those deliveries whose token is still theirs, whoever holds the lease."""
    cursor.execute(
        "SELECT x.p, x.o, x.t, s.acked, s.in_flight, s.failure_count"
        f" FROM {values_table(('p', 'o', 't'), len(deliveries.tickets))} x"
        " STRAIGHT_JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = %s AND s.topic = %s"
        " AND s.partition_key = x.p AND s.message_offset = x.o AND s.delivery_token = x.t",
        [*deliveries.values(), deliveries.me.group, deliveries.me.topic],
    )
    return {
        Ticket(p, int(o), int(t)): (bool(acked), bool(flying), int(failures))
        for p, o, t, acked, flying, failures in cursor.fetchall()
    }
