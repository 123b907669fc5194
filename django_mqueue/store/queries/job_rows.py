"""Read the state of one job: its message, and the delivery state of its group. Store the job's note.

The column ``result`` has the note of a job that runs, and later what the job returned.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from django.db.backends.utils import CursorWrapper

from ...policy.names import scheduled_topic
from ...policy.outcomes import PARKED_AT
from .. import offsets
from ..connection import session
from ..connection.dialect import STATE_OF_MESSAGE
from ..parked_retries import PARKED

LAST = "~"
"""Sorts after every other character that job ids contain."""
_SELECT = (
    "SELECT m.topic, m.`offset`, m.payload, m.metadata, m.available_at, m.created_at, s.acked, s.in_flight,"
    " s.invisible_until, s.retry_count, s.handed, s.delivered_to, s.delivered_at, s.acked_at, s.errors, s.result,"
    " s.message_offset IS NULL AND m.`offset` <= (SELECT r.offset_acked FROM queue_offsets r"
    " FORCE INDEX (queue_offsets_partition) WHERE r.consumer_group = %s AND r.topic = m.topic AND r.partition_key = '')"
    " FROM queue_messages m FORCE INDEX ({index})"
    f" LEFT JOIN {STATE_OF_MESSAGE}"
)
COLUMNS = (
    "topic", "offset", "payload", "metadata", "available_at", "created_at", "acked", "in_flight", "invisible_until",
    "retry_count", "handed", "delivered_to", "delivered_at", "acked_at", "errors", "result",
    "is_before_start",
)  # fmt: skip


class FoundId(NamedTuple):
    """The id of a job. ``is_scheduled``: it was found among the scheduled messages, and not as a parked retry."""

    id: str
    is_scheduled: bool


def by_id(using: str, group: str, topics: tuple[str, str], partition: str, id: str) -> dict[str, Any] | None:
    """Return the job with this id, by ``COLUMNS``; None if it is in neither of the topics."""
    where = "m.topic IN (%s, %s) AND m.partition_key = %s AND m.id = %s AND m.consumer_group = '' LIMIT 1"
    return _first(using, "queue_messages_dedupe", where, group, [*topics, partition, id])


def newest_id(
    using: str, topics: tuple[str, str], partition: str, prefix: str, last: str | None = None
) -> FoundId | None:
    """Return the greatest job id with this prefix in the topics, or None. The index orders the ids of a partition.

    ``topics``: the topic of the queue, and that of its scheduled messages. ``last``: the greatest id that counts.
    """
    one = (
        "(SELECT m.id, m.topic FROM queue_messages m FORCE INDEX (queue_messages_dedupe) WHERE m.topic = %s"
        " AND m.partition_key = %s AND m.id > %s AND m.id < %s ORDER BY m.id DESC LIMIT 1)"
    )
    params = [partition, prefix, (prefix if last is None else last) + LAST]
    rows = session.fetch(using, f"{one} UNION ALL {one}", [topics[0], *params, topics[1], *params])
    # The queue's name may also contain ``PARKED``.
    found = []
    for text, topic in rows:
        id, parked, _ = str(text)[len(prefix) :].partition(PARKED)
        found.append(FoundId(prefix + id, topic == topics[1] and not parked))
    return max(found, default=None)


def newest_copy(using: str, group: str, topic: str, id: str) -> dict[str, Any] | None:
    """Return the newest message that a retry or a redrive made from the job with this id, by ``COLUMNS``, or None."""
    where = (
        "m.topic = %s AND m.failed_group IS NULL AND m.original_id = %s AND m.consumer_group = %s"
        " ORDER BY m.`offset` DESC LIMIT 1"
    )
    return _first(using, "queue_messages_due", where, group, [topic, id, group])


def parked(using: str, group: str, topic: str, partition: str, id: str) -> dict[str, Any] | None:
    """Return the row that the log had for this job, from its parked retry, by ``COLUMNS``, or None."""
    where = (
        "m.topic = %s AND m.partition_key = %s AND m.id > %s AND m.id < %s AND m.consumer_group = %s"
        " ORDER BY m.id DESC LIMIT 1"
    )
    params = [scheduled_topic(topic), partition, id + PARKED, id + PARKED + LAST, group]
    if (row := _first(using, "queue_messages_dedupe", where, group, params)) is None:
        return None
    retry = json.loads(row["metadata"])["retry"]
    registration = offsets.registration(using, group, topic)
    is_before_start = (  # Promotion drops it then.
        registration is not None
        and registration.generation != retry["life"]
        and registration.start >= retry["offset"]
    )
    return {
        **row, "topic": topic, "available_at": row["created_at"], "acked": 1, "invisible_until": PARKED_AT,
        "retry_count": retry["count"], "errors": json.dumps(retry["errors"]), "is_before_start": is_before_start,
    }  # fmt: skip


def _first(using: str, index: str, where: str, group: str, params: list[str]) -> dict[str, Any] | None:
    rows = session.fetch(using, f"{_SELECT.format(index=index)} WHERE {where}", [group, group, *params])
    return dict(zip(COLUMNS, rows[0], strict=True)) if rows else None


def by_offset(using: str, group: str, offset: int) -> dict[str, Any] | None:
    """Return the id, the metadata and the failure count of the message at this offset.

    Return None if the message or the group's delivery state is gone.
    """
    rows = session.fetch(
        using,
        "SELECT COALESCE(m.original_id, m.id), m.metadata, s.failure_count FROM queue_messages m FORCE INDEX (PRIMARY)"
        f" JOIN {STATE_OF_MESSAGE} WHERE m.`offset` = %s",
        [group, offset],
    )
    return dict(zip(("id", "metadata", "failure_count"), rows[0], strict=True)) if rows else None


class RunningJob(NamedTuple):
    """The primary key of the delivery state of a job."""

    group: str
    topic: str
    partition: str
    offset: int


_WHERE = "consumer_group = %s AND topic = %s AND partition_key = %s AND message_offset = %s"


def note_of(using: str, job: RunningJob) -> bytes | None:
    """Return the note of a job, or what it returned; None without either."""
    rows = session.fetch(
        using, f"SELECT result FROM queue_delivery_state FORCE INDEX (PRIMARY) WHERE {_WHERE}", job
    )
    return rows[0][0] if rows else None


def change_note(
    cursor: CursorWrapper,
    job: RunningJob,
    change: Callable[[bytes | None], bytes],
    *,
    token: int | None = None,
    wait: bool = True,
) -> bytes | None:
    """Change the note of a job that runs, and return it. None if the job does not run.

    ``token``: also return None if the job was delivered again, with another token. ``wait``: False returns None while
    another transaction has locked the row.
    """
    same, values = ("", ()) if token is None else (" AND delivery_token = %s", (token,))
    cursor.execute(
        f"SELECT result FROM queue_delivery_state FORCE INDEX (PRIMARY) WHERE {_WHERE}{same}"
        f" AND acked = 0 AND in_flight = 1 FOR UPDATE{'' if wait else ' SKIP LOCKED'}",
        [*job, *values],
    )
    rows = cursor.fetchall()
    if not rows:
        return None
    changed = change(rows[0][0])
    cursor.execute(
        f"UPDATE queue_delivery_state FORCE INDEX (PRIMARY) SET result = %s WHERE {_WHERE}", [changed, *job]
    )
    return changed
