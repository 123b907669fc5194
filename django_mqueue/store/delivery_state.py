"""Delivery state, ``queue_delivery_state``: the progress of a group with each message, and its errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.backends.utils import CursorWrapper

from .connection import session
from .connection.dialect import NOW_MS, STATE_OF_MESSAGE, flat, int_list, placeholders, union
from .connection.session import Row

NEWEST = 100
"""The number of messages of a partition that ``last_activities`` reads."""


ERRORS_KEPT = 10
"""The number of errors that a delivery state keeps, the newest ones."""
ERROR_BYTES = 4096
WORKER_DIED = "the worker died, or lost its lease, while it handled this message alone"

_FAILED_ATTEMPT = (
    f"JSON_OBJECT('at', {NOW_MS}, 'since', s.delivered_at, 'attempt', s.retry_count + 1, 'by', s.delivered_to,"
    " 'error', %s)"
)


@dataclass(frozen=True)
class Claim:
    """A claim by the subscriber ``name``. ``alone``: it is for a quarantined message, and no other message runs."""

    group: str
    topic: str
    name: str
    token: int
    visible_ms: int
    alone: bool


class Receipt(NamedTuple):
    """The receipt of one delivery. Each acknowledgement compares it with the delivery state."""

    partition: str
    offset: int
    token: int


def matching(receipts: Iterable[Receipt], table: str = "") -> tuple[str, list[str]]:
    """Return a condition for the rows of receipts, and its parameters. ``table``: the prefix of the columns.

    Deliveries of a claim have the same token, so this is one condition for each partition.
    """
    offsets = defaultdict[tuple[str, int], list[int]](list)
    for partition, offset, token in receipts:
        offsets[partition, token].append(offset)
    conditions = [
        f"({table}partition_key = %s AND {table}message_offset IN ({int_list(some)})"
        f" AND {table}delivery_token = {token:d})"
        for (_, token), some in offsets.items()
    ]
    return f"({' OR '.join(conditions)})", [partition for partition, _ in offsets]


def clip(error: str) -> str:
    """Return an error's text, shortened to ``ERROR_BYTES``. The middle is cut: a traceback's end names the error."""
    raw = error.encode("utf-8", "replace")
    if len(raw) <= ERROR_BYTES:
        return raw.decode()
    half = ERROR_BYTES // 2 - 10
    return raw[:half].decode("utf-8", "ignore") + "\n[...]\n" + raw[-half:].decode("utf-8", "ignore")


def append_error(error: str | None) -> tuple[str, list[Any]]:
    """Return an assignment that appends an error, with its parameters; an empty one without an error."""
    if error is None:
        return "", []
    text = clip(error)
    return f", s.errors = {appended_errors()}", [text, text]


def appended_errors(entry: str = _FAILED_ATTEMPT) -> str:
    """Return an expression that adds an entry to the errors and keeps the newest ``ERRORS_KEPT``.

    ``entry``: an expression for the entry. With the default, pass the error's text twice.
    """
    one_more = f"JSON_ARRAY_APPEND(COALESCE(s.errors, JSON_ARRAY()), '$', {entry})"
    return f"IF(COALESCE(JSON_LENGTH(s.errors), 0) >= {ERRORS_KEPT}, JSON_REMOVE({one_more}, '$[0]'), {one_more})"


def _parked_value(what: str, otherwise: str) -> str:
    """Return an expression for a value of a parked retry's record. Other messages yield ``otherwise``."""
    found = f"COALESCE(JSON_EXTRACT(m.metadata, '$.retry.{what}'), {otherwise})"
    return f"IF(m.original_id IS NULL, {otherwise}, {found})"


CLAIM_FRESH = (
    "INSERT INTO queue_delivery_state (consumer_group, topic, partition_key, message_offset, acked, in_flight,"
    " invisible_until, retry_count, failure_count, delivery_token, handed, alone, delivered_to, delivered_at,"
    f" errors) SELECT %s, m.topic, m.partition_key, m.`offset`, 0, 1, {NOW_MS} + %s,"
    f" {_parked_value('count', '0')}, {_parked_value('failures', '0')}, %s,"
    f" m.`offset` IN ({{handed}}), 0, %s, {NOW_MS}, {_parked_value('errors', 'NULL')}"
    " FROM queue_messages m FORCE INDEX (PRIMARY) WHERE m.`offset` IN ({offsets}) AND m.topic = %s"
    " AND m.partition_key IN ({partitions}) AND m.consumer_group IN ('', %s)"
    " ON DUPLICATE KEY UPDATE delivery_token = queue_delivery_state.delivery_token"
)
"""Finds the messages by their offsets, the primary key."""
CLAIM_AGAIN = (
    f"UPDATE queue_delivery_state s FORCE INDEX (PRIMARY) SET s.errors = IF(s.alone, {appended_errors()}, s.errors),"
    " failure_count = failure_count + alone, retry_count = retry_count + handed, delivery_token = %s,"
    f" in_flight = 1, handed = message_offset IN ({{handed}}), alone = %s,"
    f" invisible_until = {NOW_MS} + %s, delivered_to = %s, delivered_at = {NOW_MS}"
    " WHERE consumer_group = %s AND topic = %s AND ({which}) AND acked = 0"
)
"""Finds delivery state by its primary key. ``which``: ``_ONE_DUE``, and ``matching`` for quarantined deliveries."""
_ONE_DUE = f"(partition_key = %s AND message_offset = %s AND in_flight = 0 AND invisible_until <= {NOW_MS})"
CLAIMED = (
    "SELECT m.`offset`, m.partition_key, m.id, m.payload, m.metadata, m.published_at, m.failed_at,"
    " m.failure_count, m.last_error, m.original_topic, m.failed_group, m.original_id, s.retry_count,"
    f" s.failure_count, s.errors, s.invisible_until, {NOW_MS}"
    f" FROM queue_messages m FORCE INDEX (PRIMARY) STRAIGHT_JOIN {STATE_OF_MESSAGE}"
    " WHERE m.`offset` IN ({offsets}) AND s.delivery_token = %s AND s.in_flight = 1 ORDER BY m.`offset`"
)
"""Finds the messages, then their delivery state, by their primary keys."""
CLAIMED_COLUMNS = (
    "offset", "partition", "id", "payload", "metadata", "published_at", "failed_at", "message_failure_count",
    "message_last_error", "original_topic", "failed_group", "original_id", "retry_count", "failure_count",
    "errors", "invisible_until", "now",
)  # fmt: skip


def claim_fresh(
    cursor: CursorWrapper, claim: Claim, fresh: Sequence[tuple[str, int]], handed: Sequence[int]
) -> None:
    """Insert the delivery state of messages that have none. ``handed``: offsets that go to a handler now.

    After a restore of the database, an offset may belong to another message. This message is skipped if it is for
    another group, or in none of these partitions. If it is in another one of these partitions, the caller must undo
    the claim (``forget_claim``).
    """
    names, offsets = sorted({name for name, _ in fresh}), [offset for _, offset in fresh]
    cursor.execute(
        CLAIM_FRESH.format(
            handed=int_list(handed or [0]), offsets=int_list(offsets), partitions=placeholders(names)
        ),
        [claim.group, claim.visible_ms, claim.token, claim.name, claim.topic, *names, claim.group],
    )


def claim_again(
    cursor: CursorWrapper,
    claim: Claim,
    due: Sequence[tuple[str, int]],
    quarantined: Sequence[Receipt],
    handed: Sequence[int],
) -> None:
    """Claim due retries and quarantined deliveries. ``handed``: offsets that go to a handler now.

    If a delivery ran alone and its worker died, this counts as a failed attempt.
    """
    condition, partitions = matching(quarantined)
    which = " OR ".join([_ONE_DUE] * len(due) + [f"in_flight = 1 AND {condition}"] * bool(quarantined))
    cursor.execute(
        CLAIM_AGAIN.format(handed=int_list(handed or [0]), which=which),
        [
            WORKER_DIED, WORKER_DIED,
            claim.token, claim.alone, claim.visible_ms, claim.name, claim.group, claim.topic, *flat(due), *partitions,
        ],
    )  # fmt: skip


def lock_in_flight(
    cursor: CursorWrapper, group: str, topic: str, receipts: Sequence[Receipt]
) -> tuple[set[Receipt], set[Receipt]]:
    """Lock deliveries that are still in flight. Return (locked here, locked by another transaction)."""
    condition, partitions = matching(receipts)
    found = []
    for locking in (" FOR UPDATE SKIP LOCKED", ""):
        cursor.execute(
            "SELECT partition_key, message_offset, delivery_token FROM queue_delivery_state FORCE INDEX (PRIMARY)"
            f" WHERE consumer_group = %s AND topic = %s AND {condition} AND acked = 0 AND in_flight = 1{locking}",
            [group, topic, *partitions],
        )
        found.append({Receipt(p, int(o), int(t)) for p, o, t in cursor.fetchall()})
        if len(found[0]) == len(receipts):
            return found[0], set()
    return found[0], found[1] - found[0]


def claimed(cursor: CursorWrapper, group: str, offsets: Sequence[int], token: int) -> list[dict[str, Any]]:
    """Return the messages of a claim, in offset order, each a mapping by ``CLAIMED_COLUMNS``."""
    cursor.execute(CLAIMED.format(offsets=int_list(offsets)), [group, token])
    return [dict(zip(CLAIMED_COLUMNS, row, strict=True)) for row in cursor.fetchall()]


def forget_claim(cursor: CursorWrapper, claim: Claim, messages: Sequence[tuple[str, int]]) -> None:
    """Delete the delivery state that this claim has just inserted for these messages."""
    which = " OR ".join(["(partition_key = %s AND message_offset = %s)"] * len(messages))
    cursor.execute(
        "DELETE s FROM queue_delivery_state s FORCE INDEX (PRIMARY)"
        f" WHERE consumer_group = %s AND topic = %s AND ({which}) AND delivery_token = %s",
        [claim.group, claim.topic, *flat(messages), claim.token],
    )


def unclaim(cursor: CursorWrapper, group: str, topic: str, receipts: Collection[Receipt]) -> None:
    """Undo claims of messages that no handler was given. They are due at once, and no attempt is counted."""
    condition, partitions = matching(sorted(receipts))
    cursor.execute(
        "UPDATE queue_delivery_state FORCE INDEX (PRIMARY)"
        f" SET in_flight = 0, handed = 0, alone = 0, invisible_until = {NOW_MS}"
        f" WHERE consumer_group = %s AND topic = %s AND {condition} AND in_flight = 1",
        [group, topic, *partitions],
    )


def in_flight(using: str, group: str, topic: str, partitions: Sequence[str]) -> list[Row]:
    """Return (partition, offset, token, handed, alone, failures) of all deliveries in flight of the partitions."""
    return session.fetch(
        using,
        "SELECT partition_key, message_offset, delivery_token, handed, alone, failure_count"
        " FROM queue_delivery_state FORCE INDEX (queue_delivery_state_due)"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({placeholders(partitions)})"
        " AND acked = 0 AND in_flight = 1",
        [group, topic, *partitions],
    )


def count_in_flight(
    cursor: CursorWrapper, group: str, topic: str, messages: Sequence[tuple[str, int]]
) -> int:
    """Return how many of the messages (partition, offset) are in flight for the group."""
    which = " OR ".join(["(partition_key = %s AND message_offset = %s)"] * len(messages))
    cursor.execute(
        "SELECT COUNT(*) FROM queue_delivery_state FORCE INDEX (PRIMARY)"
        f" WHERE consumer_group = %s AND topic = %s AND ({which}) AND acked = 0 AND in_flight = 1",
        [group, topic, *flat(messages)],
    )
    return int(cursor.fetchone()[0])


def waiting(
    using: str, group: str, topic: str, partitions: Sequence[str], limit: int, *, by_offset: bool
) -> list[Row]:
    """Return (partition, offset, due) of each partition's first retries, by due time or by offset."""
    # By offset, the server sorts all waiting rows of a partition.
    order = "message_offset" if by_offset else "invisible_until"
    branch = (
        "SELECT partition_key, message_offset, invisible_until"
        " FROM queue_delivery_state FORCE INDEX (queue_delivery_state_due)"
        " WHERE consumer_group = %s AND topic = %s AND partition_key = %s AND acked = 0 AND in_flight = 0"
        f" ORDER BY {order} LIMIT {limit:d}"
    )
    params = flat([group, topic, partition] for partition in partitions)
    return session.fetch(using, union(branch, len(partitions)), params)


def last_activities(using: str, group: str, topic: str, partitions: Sequence[str]) -> dict[str, int]:
    """Return when a message of each partition was last delivered or finished, in epoch milliseconds; 0 if never.

    It reads ``NEWEST`` messages of each, and misses retries of older ones.
    """
    if not partitions:
        return {}
    branch = (
        "SELECT %s, MAX(GREATEST(COALESCE(delivered_at, 0), COALESCE(acked_at, 0)))"
        " FROM (SELECT delivered_at, acked_at FROM queue_delivery_state FORCE INDEX (PRIMARY)"
        " WHERE consumer_group = %s AND topic = %s AND partition_key = %s"
        f" ORDER BY message_offset DESC LIMIT {NEWEST}) x"
    )
    params = flat([partition, group, topic, partition] for partition in partitions)
    rows = session.fetch(using, union(branch, len(partitions)), params)
    return {partition: int(at or 0) for partition, at in rows}
