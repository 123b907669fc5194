"""Acknowledge, return or extend deliveries, in ``queue_delivery_state``.

Each change is a compare-and-set: its statement compares the delivery's token and the holder of the lease. One
statement changes any number of deliveries. In its joins ``queue_delivery_state`` is the first table, so that the
server updates rows while it reads them. Otherwise the server would use a temporary table, and MariaDB 10.11 crashes
when it cannot create one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from ..policy.outcomes import ASIDE_AT
from . import failures
from .connection.dialect import NOW_MS, flat, marks, sharing, values_table
from .delivery_state import Receipt
from .leases import Holder


@dataclass(frozen=True)
class Deliveries:
    """Deliveries to one lease holder, in the order in which their rows are locked."""

    me: Holder
    tickets: Sequence[Receipt]

    def update(self, cursor: CursorWrapper, assignments: str, values: Sequence[Any] = ()) -> int:
        """Change the deliveries that are in flight under their token, if the holder has the lease. Return how many.

        ``assignments`` is SQL; ``values`` are its parameters.
        """
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
    """Acknowledge deliveries. Return how many of them the holder still had.

    ``error`` is kept with the message, and counts as a failed attempt. ``token`` replaces the tokens of the
    deliveries, so that a late answer with an old token is not mistaken for this one. ``skipped``: offsets that a
    filter kept from the handler. ``is_aside``: the message continues as a parked retry.
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
    """Deliver messages again after ``delay_ms`` milliseconds. Return how many of the deliveries the holder still had.

    ``failed`` counts a failed attempt; otherwise the delivery is not counted as an attempt. ``error`` is kept with the
    message.
    """
    add, values = failures.appended(error)
    counts = "s.failure_count = s.failure_count + 1" if failed else "s.handed = 0"
    return deliveries.update(
        cursor,
        f"{counts}, s.in_flight = 0, s.alone = 0, s.invisible_until = {NOW_MS} + %s{add}",
        [delay_ms, *values],
    )


def extend(cursor: CursorWrapper, deliveries: Deliveries, visible_ms: int) -> int:
    """Keep deliveries invisible for ``visible_ms`` milliseconds from now. Return how many of them the holder still
    had.
    """
    return deliveries.update(cursor, f"s.invisible_until = {NOW_MS} + %s", [visible_ms])


_TICKET = "(s.partition_key = %s AND s.message_offset = %s AND s.delivery_token = %s)"


def lock_free(cursor: CursorWrapper, deliveries: Deliveries) -> set[Receipt]:
    """Lock deliveries in flight, and their leases in share mode. Skip rows that another transaction has locked.

    Return the deliveries that are locked by this transaction and whose lease the holder has.
    """
    which = " OR ".join([_TICKET] * len(deliveries.tickets))
    cursor.execute(
        "SELECT s.partition_key, s.message_offset, s.delivery_token"
        " FROM queue_delivery_state s FORCE INDEX (PRIMARY)"
        f" WHERE s.consumer_group = %s AND s.topic = %s AND ({which})"
        " AND s.acked = 0 AND s.in_flight = 1 FOR UPDATE SKIP LOCKED",
        [deliveries.me.group, deliveries.me.topic, *deliveries.values()],
    )
    found = {Receipt(p, int(o), int(t)) for p, o, t in cursor.fetchall()}
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


def mine(cursor: CursorWrapper, deliveries: Deliveries, *, locking: bool = True) -> set[Receipt]:
    """Return the deliveries that are in flight and whose lease the holder has.

    ``locking``: read the current rows, and lock them in share mode until the transaction ends. Without it, a caller's
    transaction may see the rows of its snapshot.
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
    return {Receipt(p, int(o), int(t)) for p, o, t in cursor.fetchall()}


def mark_handed(cursor: CursorWrapper, deliveries: Deliveries) -> int:
    """Record that handlers now start on deliveries that were claimed earlier. Return how many the holder still had."""
    return deliveries.update(cursor, "s.handed = 1")


def end_quarantine(cursor: CursorWrapper, deliveries: Deliveries) -> int:
    """End the quarantine of deliveries. Return how many of them the holder still had.

    Other messages run at the same time from now on. If the worker dies, this message is no longer the proven cause.
    """
    return deliveries.update(cursor, "s.alone = 0")


def look(cursor: CursorWrapper, deliveries: Deliveries) -> dict[Receipt, tuple[bool, bool, int]]:
    """Return (acknowledged, in flight, failures) of deliveries whose token is unchanged. The lease is not checked."""
    cursor.execute(
        "SELECT x.p, x.o, x.t, s.acked, s.in_flight, s.failure_count"
        f" FROM {values_table(('p', 'o', 't'), len(deliveries.tickets))} x"
        " STRAIGHT_JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = %s AND s.topic = %s"
        " AND s.partition_key = x.p AND s.message_offset = x.o AND s.delivery_token = x.t",
        [*deliveries.values(), deliveries.me.group, deliveries.me.topic],
    )
    return {
        Receipt(p, int(o), int(t)): (bool(acked), bool(flying), int(failures))
        for p, o, t, acked, flying, failures in cursor.fetchall()
    }
