"""Answers to deliveries, in ``queue_delivery_state``: each a compare-and-set on the token and on the lease's holder.

One statement for any number of deliveries: they are a table of values that is joined by primary key, whose cost
grows with their number (an OR of as many conditions grows with its square on MariaDB).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from . import failures
from .dialect import NOW_MS, flat, values_table
from .leases import Holder
from .state import Ticket


@dataclass(frozen=True)
class Deliveries:
    """Deliveries of one holder, in the order in which their rows are locked."""

    me: Holder
    tickets: Sequence[Ticket]

    def joined(self) -> tuple[str, list[Any]]:
        """The deliveries' rows (``s``) whose token is still theirs."""
        sql = (
            f"{values_table(('p', 'o', 't'), len(self.tickets))} x STRAIGHT_JOIN queue_delivery_state s"
            " ON s.consumer_group = %s AND s.topic = %s AND s.partition_key = x.p AND s.message_offset = x.o"
            " AND s.delivery_token = x.t"
        )
        params = flat((t.partition, t.offset, t.token) for t in self.tickets)
        return sql, [*params, self.me.group, self.me.topic]

    def update(self, cursor: CursorWrapper, assignments: str, values: Sequence[Any] = ()) -> int:
        """Change those that are open and whose lease is the holder's: how many were."""
        sql, params = self.joined()
        cursor.execute(
            f"UPDATE {sql} STRAIGHT_JOIN queue_partition_leases l ON l.consumer_group = %s AND l.topic = %s"
            f" AND l.partition_key = x.p AND l.holder = %s SET {assignments} WHERE s.acked = 0 AND s.in_flight = 1",
            [*params, self.me.group, self.me.topic, self.me.incarnation, *values],
        )
        return int(cursor.rowcount)


def finish(cursor: CursorWrapper, deliveries: Deliveries, error: str | None = None) -> int:
    """Mark as done: how many were the holder's. ``error`` is kept with a message that ends by failing."""
    add, values = failures.appended(error)
    if error is not None:
        add += ", s.failure_count = s.failure_count + 1"
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


def hand_over(cursor: CursorWrapper, deliveries: Deliveries) -> int:
    """Note that handlers now start on what had been claimed ahead: how many were the holder's."""
    return deliveries.update(cursor, "s.handed = 1")


def end_solitude(cursor: CursorWrapper, deliveries: Deliveries) -> int:
    """Others run beside this suspect again: its worker's death would no longer be its doing."""
    return deliveries.update(cursor, "s.alone = 0")


def look(cursor: CursorWrapper, deliveries: Deliveries) -> dict[Ticket, tuple[bool, bool]]:
    """(acked, in flight) of those deliveries whose token is still theirs, whoever holds the lease."""
    sql, params = deliveries.joined()
    cursor.execute(f"SELECT x.p, x.o, x.t, s.acked, s.in_flight FROM {sql}", params)
    return {
        Ticket(p, int(o), int(t)): (bool(acked), bool(flying)) for p, o, t, acked, flying in cursor.fetchall()
    }
