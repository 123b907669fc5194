"""Find dead letters and send them back to their groups. ``dead`` creates them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from .connection import session
from .connection.dialect import NOW_MS, marks
from .log import INSERT_COLUMNS, insert_values

COLUMNS = (
    "offset", "partition", "id", "original_id", "payload", "metadata", "published_at", "failed_at",
    "failure_count", "last_error", "original_topic", "failed_group", "topic",
)  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """A query of dead letters: the dead-letter topic, the groups that failed, and the original ids (None for all)."""

    topic: str
    groups: Collection[str]
    ids: Collection[str] | None = None

    @property
    def sql(self) -> str:
        with_ids = f" AND original_id IN ({marks(list(self.ids))})" if self.ids else ""
        return f"topic = %s AND failed_group IN ({marks(list(self.groups))}){with_ids}"

    @property
    def params(self) -> list[str]:
        return [self.topic, *self.groups, *(self.ids or ())]


def sizes(using: str, wanted: Wanted, above: int, last: int, limit: int) -> list[tuple[int, int]]:
    """Return (offset, bytes of payload and metadata) of the next dead letters up to ``last``, in offset order.

    It finds a few ids by their index. For many ids it reads all dead letters of the topic.
    """
    few = wanted.ids and len(wanted.ids) * len(wanted.groups) <= limit
    index = "queue_messages_due" if few else "queue_messages_tail"
    rows = session.fetch(
        using,
        f"SELECT `offset`, LENGTH(payload) + LENGTH(metadata) FROM queue_messages FORCE INDEX ({index})"
        f" WHERE {wanted.sql} AND `offset` > %s AND `offset` <= %s ORDER BY `offset` LIMIT {limit:d}",
        [*wanted.params, above, last],
    )
    return [(int(offset), int(size)) for offset, size in rows]


def groups(using: str, topic: str) -> set[str]:
    """Return the groups that have dead letters in the topic. For each group, one statement reads one row.

    With GROUP BY, both servers would sometimes read all dead letters of the topic.
    """
    found: set[str] = set()
    last = ""
    while True:
        ((group,),) = session.fetch(
            using,
            "SELECT MIN(failed_group) FROM queue_messages FORCE INDEX (queue_messages_due)"
            " WHERE topic = %s AND failed_group > %s",
            [topic, last],
        )
        if group is None:
            return found
        found.add(group)
        last = group


def lock_registered(cursor: CursorWrapper, topic: str, groups: Collection[str]) -> set[str]:
    """Return the groups that are registered for a topic. Their registrations are locked until this transaction ends."""
    cursor.execute(
        "SELECT consumer_group FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
        f" WHERE consumer_group IN ({marks(sorted(groups))}) AND topic = %s AND partition_key = ''"
        " LOCK IN SHARE MODE",
        [*sorted(groups), topic],
    )
    return {group for (group,) in cursor.fetchall()}


def read(cursor: CursorWrapper, offsets: Sequence[int]) -> list[dict[str, Any]]:
    """Return the dead letters in offset order, each a mapping by ``COLUMNS``."""
    cursor.execute(
        "SELECT `offset`, partition_key, id, COALESCE(original_id, id), payload, metadata, published_at, failed_at,"
        " failure_count, last_error, original_topic, failed_group, topic FROM queue_messages FORCE INDEX (PRIMARY)"
        f" WHERE `offset` IN ({marks(offsets)}) ORDER BY `offset`",
        list(offsets),
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in cursor.fetchall()]


@dataclass(frozen=True)
class Return:
    """A message to send back to the group that failed. ``id``: the new row's id. ``original``: the message's own id."""

    partition: str
    id: str
    group: str
    original: str
    payload: bytes
    metadata: str

    def params(self) -> list[str | bytes]:
        return [self.partition, self.id, self.group, self.payload, self.metadata, self.original]


def send_back(cursor: CursorWrapper, topic: str, messages: Sequence[Return]) -> None:
    """Append messages to the log, through the gate like every row of the log."""
    end = f"%s, %s, %s, %s, %s, {NOW_MS}, {NOW_MS}, {NOW_MS}, %s)"
    rows = [(end, message.params()) for message in messages]
    insert_values(cursor, topic, rows, f"{INSERT_COLUMNS}, original_id")
