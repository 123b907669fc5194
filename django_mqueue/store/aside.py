"""Messages that wait long for a retry: done in the log, and scheduled anew for the one group, with what they have been
through. So they hold back no watermark, and nothing behind it, while they wait."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from ..policy.names import scheduled_topic
from . import session
from .dialect import NOW_MS
from .log import INSERT_COLUMNS


@dataclass(frozen=True)
class Aside:
    """A message of a group that is to come again. ``life``: of the group's registration: after a reset the message
    itself comes again, if the log holds it (``offset``). ``id``: a fresh one, for its own is still in the log."""

    group: str
    topic: str
    partition: str
    offset: int
    life: int
    id: str


def set_aside(cursor: CursorWrapper, aside: Aside, delay_ms: int, *, counted: bool) -> bool:
    """Schedule a message anew for the group that was given it; False if the log no longer holds it.

    ``counted``: the delivery that ends was an attempt.
    """
    cursor.execute(
        "SELECT m.metadata, COALESCE(m.original_id, m.id), m.published_at, s.retry_count, s.handed, s.failure_count,"
        " s.errors FROM queue_delivery_state s FORCE INDEX (PRIMARY)"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = s.message_offset"
        " WHERE s.consumer_group = %s AND s.topic = %s AND s.partition_key = %s AND s.message_offset = %s",
        [aside.group, aside.topic, aside.partition, aside.offset],
    )
    row = cursor.fetchone()
    if row is None:
        return False
    text, id, published_at, retries, handed, failures, errors = row
    metadata: dict[str, Any] = json.loads(text)
    before = metadata.get("retry", {})
    metadata["retry"] = {
        "id": id,
        "offset": aside.offset,
        "published_at": before.get("published_at", int(published_at)),
        "count": int(retries) + (int(handed) if counted else 0),
        "failures": int(failures),
        "errors": json.loads(errors) if errors else [],
        "life": aside.life,
    }
    cursor.execute(
        f"INSERT INTO queue_messages ({INSERT_COLUMNS})"
        f" SELECT %s, partition_key, %s, %s, payload, %s, {NOW_MS} + %s, created_at, {NOW_MS}"
        " FROM queue_messages FORCE INDEX (PRIMARY) WHERE `offset` = %s",
        [
            scheduled_topic(aside.topic), aside.id, aside.group, json.dumps(metadata, ensure_ascii=False), delay_ms,
            aside.offset,
        ],
    )  # fmt: skip
    return True


def waiting(using: str, topic: str, above: int, limit: int) -> list[tuple[int, str, int | None]]:
    """The next scheduled messages of a topic that are for one group: (offset, group, and of a retry where it was)."""
    rows = session.fetch(
        using,
        "SELECT `offset`, consumer_group, JSON_EXTRACT(metadata, '$.retry.offset')"
        " FROM queue_messages FORCE INDEX (queue_messages_tail)"
        " WHERE topic = %s AND `offset` > %s AND consumer_group <> ''"
        f" ORDER BY `offset` LIMIT {limit:d}",
        [scheduled_topic(topic), above],
    )
    return [(int(offset), group, None if before is None else int(before)) for offset, group, before in rows]


def without_retry(metadata: str) -> str:
    """What a message's metadata were before it was ever set aside; or whatever they are, for it may be dead by that."""
    return without("retry", metadata)


def without(part: str, metadata: str) -> str:
    content = json.loads(metadata)
    if not isinstance(content, dict) or part not in content:
        return metadata
    del content[part]
    return json.dumps(content, ensure_ascii=False)
