"""Changes by operators to a group's messages: remove them, or change when they are due, without a delivery."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.backends.utils import CursorWrapper

from ..policy.outcomes import REMOVED_BY_HAND
from . import leases
from .connection.dialect import NOW_MS, flat
from .delivery_state import ERRORS_KEPT, appended_errors
from .offsets import REMOVING

AT_THE_FRONT = 2
"""The ``invisible_until`` of messages that were sent to the front. They are due before all other retries.

Not ``outcomes.PARKED_AT``: a message that is removed afterwards keeps it, and would seem to be parked.
"""

_REMOVAL = f"JSON_OBJECT('at', {NOW_MS}, 'attempt', 0, 'by', '', 'error', '{REMOVED_BY_HAND}')"
"""The note among the errors of a message that was removed. It is no attempt."""

Message = tuple[str, int]
"""Partition and offset."""


@dataclass(frozen=True)
class PendingMessage:
    """A message without delivery state, with the counts and errors of its parked retry."""

    partition: str
    offset: int
    retries: int = 0
    failures: int = 0
    errors: Sequence[Any] = ()


def lock_group(cursor: CursorWrapper, group: str, topic: str, generation: int) -> bool:
    """Lock a group's registration, so that no claim is in progress or begins. Its new time makes workers read again.

    Return False if the group is not registered or is being reset, or has another generation than ``generation``.
    """
    cursor.execute(
        "UPDATE queue_offsets FORCE INDEX (queue_offsets_partition)"
        f" SET updated_at = GREATEST(updated_at + 1, {NOW_MS})"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key = '' AND scan_offset <> {REMOVING} AND id = %s",
        [group, topic, generation],
    )
    return bool(cursor.rowcount)


def lock_waiting(cursor: CursorWrapper, group: str, topic: str, messages: Sequence[Message]) -> set[int]:
    """Lock the delivery state of messages that wait for a retry. Skip locked rows. Return the offsets."""
    cursor.execute(
        "SELECT message_offset FROM queue_delivery_state FORCE INDEX (PRIMARY)"
        f" WHERE consumer_group = %s AND topic = %s AND ({_each(messages)}) AND acked = 0 AND in_flight = 0"
        " FOR UPDATE SKIP LOCKED",
        [group, topic, *flat(messages)],
    )
    return {int(offset) for (offset,) in cursor.fetchall()}


def finish_waiting(
    cursor: CursorWrapper, group: str, topic: str, messages: Sequence[Message], token: int
) -> None:
    """Acknowledge messages that wait for a retry, as removed by hand. A new token makes late acks stale."""
    cursor.execute(
        "UPDATE queue_delivery_state s FORCE INDEX (PRIMARY)"
        f" SET s.errors = {appended_errors(_REMOVAL)}, s.acked = 1, s.acked_at = {NOW_MS},"
        " s.delivery_token = %s"
        f" WHERE s.consumer_group = %s AND s.topic = %s AND ({_each(messages)}) AND s.acked = 0 AND s.in_flight = 0",
        [token, group, topic, *flat(messages)],
    )


def set_due(
    cursor: CursorWrapper, group: str, topic: str, messages: Sequence[Message], due: int | None
) -> None:
    """Change when waiting messages are due. ``due``: epoch milliseconds, ``AT_THE_FRONT``, or None for now."""
    cursor.execute(
        f"UPDATE queue_delivery_state FORCE INDEX (PRIMARY) SET invisible_until = {_due(due)}"
        f" WHERE consumer_group = %s AND topic = %s AND ({_each(messages)}) AND acked = 0 AND in_flight = 0",
        [group, topic, *flat(messages)],
    )


def insert_acknowledged(
    cursor: CursorWrapper, group: str, topic: str, messages: Sequence[PendingMessage], token: int
) -> set[int]:
    """Insert an acknowledged delivery state for each message that has none. Return their offsets."""
    errors = f"JSON_ARRAY_APPEND(%s, '$', {_REMOVAL})"
    newest = [replace(m, errors=m.errors[1 - ERRORS_KEPT :]) for m in messages]
    return _begin(cursor, group, topic, newest, token, f"1, {NOW_MS}, {NOW_MS}", errors)


def begin_waiting(
    cursor: CursorWrapper,
    group: str,
    topic: str,
    messages: Sequence[PendingMessage],
    token: int,
    due: int | None,
) -> set[int]:
    """Insert a waiting delivery state for each message without one. Return their offsets. ``due``: see ``set_due``."""
    return _begin(cursor, group, topic, messages, token, f"0, NULL, {_due(due)}", "NULLIF(%s, '[]')")


def _begin(
    cursor: CursorWrapper,
    group: str,
    topic: str,
    messages: Sequence[PendingMessage],
    token: int,
    end: str,
    errors: str,
) -> set[int]:
    one = f"(%s, %s, %s, %s, 0, %s, %s, {errors}, %s, 0, 0, '', {NOW_MS}, {end})"
    cursor.execute(
        "INSERT INTO queue_delivery_state (consumer_group, topic, partition_key, message_offset, in_flight,"
        " retry_count, failure_count, errors, delivery_token, handed, alone, delivered_to, delivered_at, acked,"
        f" acked_at, invisible_until) VALUES {', '.join([one] * len(messages))}"
        " ON DUPLICATE KEY UPDATE delivery_token = queue_delivery_state.delivery_token",
        flat(
            [group, topic, m.partition, m.offset, m.retries, m.failures, json.dumps(m.errors), token]
            for m in messages
        ),
    )
    cursor.execute(
        "SELECT message_offset FROM queue_delivery_state FORCE INDEX (PRIMARY)"
        f" WHERE consumer_group = %s AND topic = %s AND ({_each(messages)}) AND delivery_token = %s",
        [group, topic, *flat((m.partition, m.offset) for m in messages), token],
    )
    return {int(offset) for (offset,) in cursor.fetchall()}


def insert_free_leases(cursor: CursorWrapper, group: str, topic: str, partitions: Sequence[str]) -> None:
    """Insert free leases for partitions without one, so that workers find the waiting messages."""
    missing = sorted(set(partitions) - leases.known(cursor.db.alias, group, topic, partitions))
    if missing:  # Only missing rows, as in offsets.lock_topic.
        cursor.execute(
            "INSERT INTO queue_partition_leases (consumer_group, topic, partition_key, leased_by, holder, leased_at,"
            f" lease_renewed_at) VALUES {', '.join([f'(%s, %s, %s, %s, %s, {NOW_MS}, {NOW_MS})'] * len(missing))}"
            " ON DUPLICATE KEY UPDATE leased_at = queue_partition_leases.leased_at",
            flat([group, topic, partition, "", ""] for partition in missing),
        )


def reschedule(cursor: CursorWrapper, offsets: Sequence[int], due: int | None) -> None:
    """Change when scheduled messages are due; None: now. This transaction has locked their rows."""
    for offset in offsets:
        cursor.execute(
            f"UPDATE queue_messages FORCE INDEX (PRIMARY) SET available_at = {_due(due)} WHERE `offset` = %s",
            [offset],
        )


def _due(due: int | None) -> str:
    return NOW_MS if due is None else f"{due:d}"


def _each(messages: Sequence[Message] | Sequence[PendingMessage]) -> str:
    return " OR ".join(["(partition_key = %s AND message_offset = %s)"] * len(messages))
