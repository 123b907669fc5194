"""Acknowledge, return or extend deliveries, in ``queue_delivery_state``.

Each change is a compare-and-set: its statement compares the delivery's token and the holder of the lease. One
statement changes any number of deliveries. Its first table is ``queue_delivery_state``, so that the server updates rows
while it reads them. Otherwise the server uses a temporary table, and MariaDB 10.11 crashes if it cannot create one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.backends.utils import CursorWrapper

from ..policy.batching import BYTES_PER_STATEMENT, PER_STATEMENT, batches_by_weight
from ..policy.outcomes import PARKED_AT
from .connection.dialect import NOW_MS, flat, for_share, int_list, placeholders, values_table
from .delivery_state import Receipt, append_error, matching
from .leases import Holder

NO_RESULTS: Mapping[Receipt, bytes] = {}

_CHANGE = (
    "UPDATE queue_delivery_state s FORCE INDEX (PRIMARY) STRAIGHT_JOIN queue_partition_leases l"
    " FORCE INDEX (queue_leases_partition) ON l.consumer_group = s.consumer_group AND l.topic = s.topic"
    " AND l.partition_key = s.partition_key AND l.holder = %s SET {}{{more}}"
    " WHERE s.consumer_group = %s AND s.topic = %s AND {{receipts}} AND s.acked = 0 AND s.in_flight = 1"
)
"""Finds delivery state by its primary key, and for each row the lease by ``queue_leases_partition``."""
ACK = _CHANGE.format(f"s.acked = 1, s.in_flight = 0, s.acked_at = {NOW_MS}")
PUT_BACK = _CHANGE.format(f"s.in_flight = 0, s.alone = 0, s.invisible_until = {NOW_MS} + %s")
EXTEND = _CHANGE.format(f"s.invisible_until = {NOW_MS} + %s")
MARK_HANDED = _CHANGE.format("s.handed = 1")
END_QUARANTINE = _CHANGE.format("s.alone = 0")

COUNT_FAILURE = ", s.failure_count = s.failure_count + 1"
"""Follows the assignments of a statement."""


class State(NamedTuple):
    """The state of a delivery. ``is_parked``: it is acknowledged in the log, because its retry is parked."""

    acked: bool
    in_flight: bool
    failures: int
    is_parked: bool = False


class Deliveries:
    """Deliveries to one lease holder.

    ``receipts`` are in the order in which all transactions lock their rows. This avoids deadlocks.
    """

    def __init__(self, holder: Holder, receipts: Iterable[Receipt]) -> None:
        self.holder, self.receipts = holder, sorted(receipts)

    def _change(
        self,
        cursor: CursorWrapper,
        statement: str,
        values: Sequence[Any] = (),
        more: str = "",
        results: Mapping[Receipt, bytes] = NO_RESULTS,
    ) -> int:
        """Change deliveries that are in flight with these tokens, if the holder has the lease. Return how many.

        ``more``: further assignments. The server compares each row with all receipts of a statement. So a statement has
        at most ``PER_STATEMENT``.
        """
        changed = 0
        for some in batches_by_weight(
            self.receipts, lambda receipt: len(results.get(receipt, b"")), BYTES_PER_STATEMENT, PER_STATEMENT
        ):
            receipts, partitions = matching(some, "s.")
            given = [(receipt.offset, results[receipt]) for receipt in some if receipt in results]
            cases = " WHEN %s THEN %s" * len(given)
            with_results = (
                f"{more}, s.result = CASE s.message_offset{cases} ELSE s.result END" if given else more
            )
            cursor.execute(
                statement.format(more=with_results, receipts=receipts),
                [
                    self.holder.incarnation, *values, *flat(given), self.holder.group, self.holder.topic, *partitions,
                ],
            )  # fmt: skip
            changed += int(cursor.rowcount)
        return changed

    def finish(
        self,
        cursor: CursorWrapper,
        error: str | None = None,
        token: int | None = None,
        *,
        counted: bool = True,
        skipped: Sequence[int] = (),
        is_parked: bool = False,
        results: Mapping[Receipt, bytes] = NO_RESULTS,
    ) -> int:
        """Acknowledge the deliveries. Return how many of them the holder still had.

        ``error`` is kept with the message, and counts as a failed attempt if ``counted``. ``token`` replaces the
        deliveries' tokens, so that a late ack with an old token fails. ``skipped``: offsets that a filter kept from
        the handler. ``is_parked``: the message continues as a parked retry. ``results``: what to store with the
        deliveries.
        """
        more, values = append_error(error)
        if error is not None and counted:
            more += COUNT_FAILURE
        if token is not None:
            more, values = f"{more}, s.delivery_token = %s", [*values, token]
        if skipped:
            more += f", s.handed = s.message_offset NOT IN ({int_list(skipped)})"
        if is_parked:
            more += f", s.invisible_until = {PARKED_AT}"
        return self._change(cursor, ACK, values, more, results)

    def put_back(self, cursor: CursorWrapper, delay_ms: int, error: str | None) -> int:
        """Deliver the messages again after ``delay_ms`` milliseconds. Return how many the holder still had.

        ``error`` is kept with the message and counts as a failed attempt. With None, the delivery is not counted.
        """
        more, values = append_error(error)
        more += ", s.handed = 0" if error is None else COUNT_FAILURE
        return self._change(cursor, PUT_BACK, [delay_ms, *values], more)

    def extend(self, cursor: CursorWrapper, visible_ms: int) -> int:
        """Keep the deliveries invisible for ``visible_ms`` milliseconds. Return how many the holder still had."""
        return self._change(cursor, EXTEND, [visible_ms])

    def mark_handed(self, cursor: CursorWrapper) -> int:
        """Record that handlers start on deliveries that were claimed ahead. Return how many the holder still had."""
        return self._change(cursor, MARK_HANDED)

    def end_quarantine(self, cursor: CursorWrapper) -> None:
        """Record that other messages now run as well. If the worker dies, no failed attempt is counted."""
        self._change(cursor, END_QUARANTINE)

    def lock_unlocked(self, cursor: CursorWrapper) -> Deliveries:
        """Lock deliveries in flight, and their leases in share mode. Skip rows that another transaction has locked.

        Return the deliveries that are locked by this transaction and whose lease the holder has.
        """
        if not self.receipts:
            return self
        condition, partitions = matching(self.receipts, "s.")
        cursor.execute(
            "SELECT s.partition_key, s.message_offset, s.delivery_token"
            " FROM queue_delivery_state s FORCE INDEX (PRIMARY)"
            f" WHERE s.consumer_group = %s AND s.topic = %s AND {condition}"
            " AND s.acked = 0 AND s.in_flight = 1 FOR UPDATE SKIP LOCKED",
            [self.holder.group, self.holder.topic, *partitions],
        )
        found = {Receipt(p, int(o), int(t)) for p, o, t in cursor.fetchall()}
        held = set()
        if names := sorted({receipt.partition for receipt in found}):
            cursor.execute(
                "SELECT partition_key FROM queue_partition_leases FORCE INDEX (queue_leases_partition)"
                f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({placeholders(names)})"
                f" AND holder = %s {for_share(cursor.db.alias)}",
                [self.holder.group, self.holder.topic, *names, self.holder.incarnation],
            )
            held = {partition for (partition,) in cursor.fetchall()}
        return Deliveries(self.holder, [receipt for receipt in found if receipt.partition in held])

    def in_flight_receipts(self, cursor: CursorWrapper, *, locking: bool) -> set[Receipt]:
        """Return the receipts of deliveries that are in flight and whose lease the holder has.

        ``locking``: read the current rows, and lock them in share mode until the transaction ends. Otherwise this may
        read the snapshot of a caller's transaction.
        """
        if not self.receipts:
            return set()
        condition, partitions = matching(self.receipts, "s.")
        cursor.execute(
            "SELECT s.partition_key, s.message_offset, s.delivery_token"
            " FROM queue_delivery_state s FORCE INDEX (PRIMARY) STRAIGHT_JOIN queue_partition_leases l"
            " FORCE INDEX (queue_leases_partition) ON l.consumer_group = s.consumer_group AND l.topic = s.topic"
            " AND l.partition_key = s.partition_key AND l.holder = %s"
            f" WHERE s.consumer_group = %s AND s.topic = %s AND {condition}"
            f" AND s.acked = 0 AND s.in_flight = 1{' LOCK IN SHARE MODE' if locking else ''}",
            [self.holder.incarnation, self.holder.group, self.holder.topic, *partitions],
        )
        return {Receipt(p, int(o), int(t)) for p, o, t in cursor.fetchall()}

    def states(self, cursor: CursorWrapper) -> dict[Receipt, State]:
        """Return the states of deliveries whose token is unchanged. Ignore their leases."""
        if not self.receipts:
            return {}
        cursor.execute(
            f"SELECT x.p, x.o, x.t, s.acked, s.in_flight, s.failure_count, s.invisible_until = {PARKED_AT}"
            f" FROM {values_table(('p', 'o', 't'), len(self.receipts))} x"
            " STRAIGHT_JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = %s AND s.topic = %s"
            " AND s.partition_key = x.p AND s.message_offset = x.o AND s.delivery_token = x.t",
            [*flat(self.receipts), self.holder.group, self.holder.topic],
        )
        return {
            Receipt(p, int(o), int(t)): State(bool(acked), bool(in_flight), int(failures), bool(is_parked))
            for p, o, t, acked, in_flight, failures, is_parked in cursor.fetchall()
        }
