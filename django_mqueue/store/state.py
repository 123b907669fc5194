"""Delivery state, ``queue_delivery_state``: what a group has done with each message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from . import session
from .dialect import NOW_MS, flat, marks, union
from .session import Row

ERRORS_KEPT = 10
ERROR_BYTES = 4096
WORKER_DIED = "the worker died, or lost its lease, while it handled this message alone"


@dataclass(frozen=True)
class Claim:
    """Who claims: group and topic, the subscriber's name, the claim's token, how long it is invisible."""

    group: str
    topic: str
    name: str
    token: int
    visible_ms: int
    alone: bool


@dataclass(frozen=True)
class Ticket:
    """One delivery, named as the compare-and-set of every answer needs it."""

    partition: str
    offset: int
    token: int


def claim_fresh(cursor: CursorWrapper, claim: Claim, offsets: Sequence[int], handed: Sequence[int]) -> None:
    """Mark messages that have no state as delivered; those that have some are left as they are."""
    cursor.execute(
        "INSERT INTO queue_delivery_state (consumer_group, topic, partition_key, message_offset, acked, in_flight,"
        " invisible_until, retry_count, failure_count, delivery_token, handed, alone, delivered_to, delivered_at)"
        f" SELECT %s, m.topic, m.partition_key, m.`offset`, 0, 1, {NOW_MS} + %s, 0, 0, %s,"
        f" m.`offset` IN ({marks(handed or [0])}), 0, %s, {NOW_MS}"
        f" FROM queue_messages m WHERE m.`offset` IN ({marks(offsets)}) AND m.topic = %s"
        " ON DUPLICATE KEY UPDATE delivery_token = queue_delivery_state.delivery_token",
        [claim.group, claim.visible_ms, claim.token, *(handed or [0]), claim.name, *offsets, claim.topic],
    )


def claim_again(
    cursor: CursorWrapper,
    claim: Claim,
    due: Sequence[tuple[str, int]],
    suspects: Sequence[Ticket],
    handed: Sequence[int],
) -> None:
    """Deliver again what waits and is due, and what its last holder left unanswered (by its old token).

    A redelivery is counted if the last delivery reached a handler. A suspect that ran alone has failed by it.
    """
    one_due = "(partition_key = %s AND message_offset = %s AND in_flight = 0 AND invisible_until <= {now})"
    one_suspect = "(partition_key = %s AND message_offset = %s AND in_flight = 1 AND delivery_token = %s)"
    which = " OR ".join([one_due.format(now=NOW_MS)] * len(due) + [one_suspect] * len(suspects))
    cursor.execute(
        "UPDATE queue_delivery_state s SET s.errors = IF(s.alone, " + _grown() + ", s.errors),"
        " failure_count = failure_count + alone, retry_count = retry_count + handed, delivery_token = %s,"
        f" in_flight = 1, handed = message_offset IN ({marks(handed or [0])}), alone = %s,"
        f" invisible_until = {NOW_MS} + %s, delivered_to = %s, delivered_at = {NOW_MS}"
        f" WHERE consumer_group = %s AND topic = %s AND ({which}) AND acked = 0",
        [
            WORKER_DIED, WORKER_DIED, claim.token, *(handed or [0]), claim.alone, claim.visible_ms, claim.name,
            claim.group, claim.topic,
            *flat(due), *flat((s.partition, s.offset, s.token) for s in suspects),
        ],
    )  # fmt: skip


CLAIMED_COLUMNS = (
    "offset", "partition", "id", "payload", "metadata", "published_at", "failed_at", "message_failure_count",
    "message_last_error", "original_topic", "failed_group", "original_id", "retry_count", "failure_count",
    "errors", "invisible_until", "now",
)  # fmt: skip


def claimed(cursor: CursorWrapper, group: str, offsets: Sequence[int], token: int) -> list[dict[str, Any]]:
    """What a claim got, in offset order: a mapping by ``CLAIMED_COLUMNS`` for each message."""
    cursor.execute(
        "SELECT m.`offset`, m.partition_key, m.id, m.payload, m.metadata, m.published_at, m.failed_at,"
        " m.failure_count, m.last_error, m.original_topic, m.failed_group, m.original_id, s.retry_count,"
        f" s.failure_count, s.errors, s.invisible_until, {NOW_MS}"
        " FROM queue_messages m STRAIGHT_JOIN queue_delivery_state s ON s.consumer_group = %s AND s.topic = m.topic"
        " AND s.partition_key = m.partition_key AND s.message_offset = m.`offset`"
        f" WHERE m.`offset` IN ({marks(offsets)}) AND s.delivery_token = %s AND s.in_flight = 1 ORDER BY m.`offset`",
        [group, *offsets, token],
    )
    return [dict(zip(CLAIMED_COLUMNS, row, strict=True)) for row in cursor.fetchall()]


_FENCED = (
    "UPDATE queue_delivery_state s STRAIGHT_JOIN queue_partition_leases l ON l.consumer_group = s.consumer_group"
    " AND l.topic = s.topic AND l.partition_key = s.partition_key AND l.holder = %s SET "
)


def _which(tickets: Sequence[Ticket]) -> tuple[str, list[Any]]:
    one = "(s.partition_key = %s AND s.message_offset = %s AND s.delivery_token = %s)"
    sql = f" WHERE s.consumer_group = %s AND s.topic = %s AND ({' OR '.join([one] * len(tickets))})"
    return sql + " AND s.acked = 0 AND s.in_flight = 1", flat(
        (t.partition, t.offset, t.token) for t in tickets
    )


def finish(
    cursor: CursorWrapper,
    group: str,
    topic: str,
    holder: str,
    tickets: Sequence[Ticket],
    error: str | None = None,
) -> int:
    """Mark deliveries as done, if they and their leases are still this holder's: how many were.

    ``error`` is kept with a message that ends by failing.
    """
    which, params = _which(tickets)
    add, add_params = _append_error(error)
    if error is not None:
        add += ", s.failure_count = s.failure_count + 1"
    cursor.execute(
        f"{_FENCED} s.acked = 1, s.in_flight = 0, s.acked_at = {NOW_MS}{add}{which}",
        [holder, *add_params, group, topic, *params],
    )
    return int(cursor.rowcount)


def put_back(
    cursor: CursorWrapper,
    group: str,
    topic: str,
    holder: str,
    tickets: Sequence[Ticket],
    *,
    delay_ms: int,
    failed: bool,
    error: str | None = None,
) -> int:
    """Deliver again after ``delay_ms``: how many were this holder's to put back.

    ``failed`` counts an attempt; else the delivery counts as none at all.
    """
    which, params = _which(tickets)
    add, add_params = _append_error(error)
    counts = " s.failure_count = s.failure_count + 1," if failed else " s.handed = 0,"
    cursor.execute(
        f"{_FENCED}{counts} s.in_flight = 0, s.alone = 0, s.invisible_until = {NOW_MS} + %s{add}{which}",
        [holder, delay_ms, *add_params, group, topic, *params],
    )
    return int(cursor.rowcount)


def extend(
    cursor: CursorWrapper, group: str, topic: str, holder: str, tickets: Sequence[Ticket], visible_ms: int
) -> int:
    """Keep deliveries invisible for ``visible_ms`` from now: how many were this holder's."""
    which, params = _which(tickets)
    cursor.execute(
        f"{_FENCED} s.invisible_until = {NOW_MS} + %s{which}", [holder, visible_ms, group, topic, *params]
    )
    return int(cursor.rowcount)


def hand_over(cursor: CursorWrapper, group: str, topic: str, holder: str, tickets: Sequence[Ticket]) -> int:
    """Note that a handler now starts on what had been claimed ahead: how many were this holder's."""
    which, params = _which(tickets)
    cursor.execute(f"{_FENCED} s.handed = 1{which}", [holder, group, topic, *params])
    return int(cursor.rowcount)


def end_solitude(cursor: CursorWrapper, group: str, topic: str, holder: str, ticket: Ticket) -> int:
    """Others run beside this suspect again: its worker's death would no longer be its doing."""
    which, params = _which([ticket])
    cursor.execute(f"{_FENCED} s.alone = 0{which}", [holder, group, topic, *params])
    return int(cursor.rowcount)


def answered(
    cursor: CursorWrapper, group: str, topic: str, tickets: Sequence[Ticket]
) -> dict[Ticket, tuple[bool, bool]]:
    """(acked, in flight) of those deliveries whose token is still theirs."""
    one = "(partition_key = %s AND message_offset = %s AND delivery_token = %s)"
    cursor.execute(
        "SELECT partition_key, message_offset, delivery_token, acked, in_flight FROM queue_delivery_state"
        f" WHERE consumer_group = %s AND topic = %s AND ({' OR '.join([one] * len(tickets))})",
        [group, topic, *flat((t.partition, t.offset, t.token) for t in tickets)],
    )
    return {
        Ticket(p, int(o), int(t)): (bool(acked), bool(flying)) for p, o, t, acked, flying in cursor.fetchall()
    }


def unclaim(using: str, group: str, topic: str, token: int, messages: Sequence[tuple[str, int]]) -> None:
    """Undo a claim whose COMMIT was lost on the way: nobody was handed anything of it."""
    which = " OR ".join(["(partition_key = %s AND message_offset = %s)"] * len(messages))
    session.execute(
        using,
        f"UPDATE queue_delivery_state SET in_flight = 0, handed = 0, alone = 0, invisible_until = {NOW_MS}"
        f" WHERE consumer_group = %s AND topic = %s AND ({which}) AND delivery_token = %s AND in_flight = 1",
        [group, topic, *flat(messages), token],
    )


PENDING_COLUMNS = (
    "partition_key, message_offset, in_flight, invisible_until, delivery_token, handed, alone, failure_count"
)


def in_flight(using: str, group: str, topic: str, partitions: Sequence[str]) -> list[Row]:
    """What is marked delivered and unanswered, all of it (bounded by what workers claim at once)."""
    return session.fetch(
        using,
        f"SELECT {PENDING_COLUMNS} FROM queue_delivery_state FORCE INDEX (queue_delivery_state_due)"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({marks(partitions)})"
        " AND acked = 0 AND in_flight = 1",
        [group, topic, *partitions],
    )


def waiting(
    using: str, group: str, topic: str, partitions: Sequence[str], limit: int, *, by_offset: bool
) -> list[Row]:
    """The first ``limit`` of each partition that wait for a retry: by due time, or by offset for strict order."""
    order = "message_offset" if by_offset else "invisible_until"
    branch = (
        f"SELECT {PENDING_COLUMNS} FROM queue_delivery_state FORCE INDEX (queue_delivery_state_due)"
        " WHERE consumer_group = %s AND topic = %s AND partition_key = %s AND acked = 0 AND in_flight = 0"
        f" ORDER BY {order} LIMIT {limit:d}"
    )
    params = flat([group, topic, partition] for partition in partitions)
    return session.fetch(using, union(branch, len(partitions)), params)


def delete_group(cursor: CursorWrapper, group: str, topic: str, limit: int = 1000) -> bool:
    """Delete up to ``limit`` rows of a group that is not registered; whether there may be more."""
    cursor.execute(
        "SELECT partition_key, message_offset FROM queue_delivery_state WHERE consumer_group = %s AND topic = %s"
        f" ORDER BY partition_key, message_offset LIMIT {limit:d}",
        [group, topic],
    )
    rows = cursor.fetchall()
    if rows:
        which = " OR ".join(["(partition_key = %s AND message_offset = %s)"] * len(rows))
        cursor.execute(
            f"DELETE FROM queue_delivery_state WHERE consumer_group = %s AND topic = %s AND ({which})",
            [group, topic, *flat(rows)],
        )
    return len(rows) == limit


def clip(error: str) -> str:
    """An error's text as it is kept: the end says most, so the middle goes."""
    raw = error.encode("utf-8", "replace")
    if len(raw) <= ERROR_BYTES:
        return raw.decode()
    half = ERROR_BYTES // 2 - 10
    return raw[:half].decode("utf-8", "ignore") + "\n[...]\n" + raw[-half:].decode("utf-8", "ignore")


def _append_error(error: str | None) -> tuple[str, list[Any]]:
    """Assignment that keeps one more error, and its parameters."""
    if error is None:
        return "", []
    text = clip(error)
    return f", s.errors = {_grown()}", [text, text]


def _grown() -> str:
    """``errors`` with one more text, the oldest beyond ``ERRORS_KEPT`` dropped; takes the text twice."""
    grown = (
        f"JSON_ARRAY_APPEND(COALESCE(s.errors, JSON_ARRAY()), '$', JSON_OBJECT('at', {NOW_MS},"
        " 'attempt', s.retry_count + 1, 'by', s.delivered_to, 'error', %s))"
    )
    return f"IF(COALESCE(JSON_LENGTH(s.errors), 0) >= {ERRORS_KEPT}, JSON_REMOVE({grown}, '$[0]'), {grown})"
