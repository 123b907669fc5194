"""The log, ``queue_messages``: append messages, and read them in offset order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.backends.utils import CursorWrapper

from ..policy.encoding import Encoded
from ..policy.names import scheduled_topic
from .connection import dialect, session
from .connection.dialect import GROUP_ROW, IN_TOPIC, NOW_MS, STATE_OF_MESSAGE, flat, union
from .connection.second_connection import keeps_snapshot, outside_snapshot
from .connection.session import Row
from .gates import locking_topic
from .queries.skip_scan import NEWEST, partitions

INSERT_COLUMNS = (
    "topic, partition_key, id, consumer_group, payload, metadata, available_at, created_at, published_at"
)
COPY_COLUMNS = f"{INSERT_COLUMNS}, original_id"
DUPLICATE_FLAG = 1 << 62
"""Added to the offset in LAST_INSERT_ID if the row existed before. So one round trip returns the offset and this fact.
"""
INSERT = "INSERT INTO queue_messages ({columns}) VALUES {rows}"
"""The first row's topic is ``gates.LOCK_SLOT``, which reads ``queue_offsets_partition``."""
INSERT_ONCE = (
    f"INSERT INTO queue_messages ({INSERT_COLUMNS}) VALUES ({{gate}}, {{row}}) ON DUPLICATE KEY UPDATE"
    f" available_at = IF(LAST_INSERT_ID(`offset` + {DUPLICATE_FLAG}), available_at, available_at)"
)
"""Finds a duplicate by ``queue_messages_dedupe``. ``gate``: ``gates.LOCK_SLOT``."""

_REGISTERED = f"(SELECT consumer_group FROM queue_offsets {GROUP_ROW})"
"""The group's name, or NULL if the group is not registered; then the INSERT fails."""


MessageKey = tuple[str, str, str]
"""Partition, id and target group. They identify a message within its topic."""


class NewRow(NamedTuple):
    """A message that is about to be stored. ``group``: the only group that it is for; '' for all groups."""

    partition: str
    id: str
    content: Encoded
    group: str = ""

    @property
    def message_key(self) -> MessageKey:
        return self.partition, self.id, self.group

    @property
    def target(self) -> str:
        """Return the SQL for the target group. For an unregistered group it yields NULL, and the INSERT fails."""
        return _REGISTERED if self.group else "''"

    @property
    def sql(self) -> str:
        """Return the SQL of the row's values after the topic."""
        return f"%s, %s, {self.target}, %s, %s, {NOW_MS}, {NOW_MS}, {NOW_MS}"

    def params(self, topic: str) -> list[str | bytes]:
        target = [self.group, topic] if self.group else []
        return [self.partition, self.id, *target, self.content.body, self.content.metadata]


def insert(cursor: CursorWrapper, topic: str, rows: Sequence[NewRow]) -> int:
    """Append rows whose ids are not used yet. Return the first row's offset; the others follow without gaps.

    One INSERT ... VALUES reserves all its offsets at once. Raises ``IntegrityError`` for an id that exists, and for a
    group that is not registered.
    """
    return insert_values(cursor, topic, [(row.sql, row.params(topic)) for row in rows])


def insert_values(
    cursor: CursorWrapper,
    topic: str,
    rows: Sequence[tuple[str, Sequence[Any]]],
    columns: str = INSERT_COLUMNS,
) -> int:
    """Append rows through the gate. A row: the SQL of its values after the topic, and their parameters."""
    gate, gate_params = locking_topic(topic)
    values = ", ".join(f"({'%s' if number else gate}, {sql})" for number, (sql, _) in enumerate(rows))
    params = flat([topic, *row] for _, row in rows)[1:]  # The gate yields the first row's topic.
    cursor.execute(INSERT.format(columns=columns, rows=values), [*gate_params, *params])
    return int(cursor.lastrowid)


def insert_once(cursor: CursorWrapper, topic: str, row: NewRow) -> tuple[int, bool]:
    """Append a row unless its id exists. Return (offset of the stored row, whether this call stored it)."""
    if keeps_snapshot(cursor.db.alias):
        stored = existing_now(cursor, topic, [row.message_key]).get(row.message_key)
        if stored is not None:
            return stored, False
    gate, gate_params = locking_topic(topic)
    cursor.execute(INSERT_ONCE.format(gate=gate, row=row.sql), [*gate_params, *row.params(topic)])
    offset = int(cursor.lastrowid)
    return (offset, True) if offset < DUPLICATE_FLAG else (offset - DUPLICATE_FLAG, False)


def existing(
    cursor: CursorWrapper, topic: str, message_keys: Sequence[MessageKey], *, locking: bool = False
) -> dict[MessageKey, int]:
    """Return the offset of each message that the log holds. ``locking`` waits for transactions that store one."""
    if not message_keys:
        return {}
    cursor.execute(
        f"SELECT x.p, x.i, x.g, m.`offset` FROM {dialect.values_table(('p', 'i', 'g'), len(message_keys))} x"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (queue_messages_dedupe) ON m.topic = %s"
        " AND m.partition_key = x.p AND m.id = x.i AND m.consumer_group = x.g"
        + (" LOCK IN SHARE MODE" if locking else ""),
        [*flat(message_keys), topic],
    )
    return {(partition, id, group): offset for partition, id, group, offset in cursor.fetchall()}


def existing_now(
    cursor: CursorWrapper, topic: str, message_keys: Sequence[MessageKey], *, locking: bool = False
) -> dict[MessageKey, int]:
    """Return the result of ``existing``, regardless of the snapshot of the caller's transaction.

    At REPEATABLE READ it takes no lock, even with ``locking``: a lock on a missing id would block publishers of any
    topic. If a scheduled message becomes a duplicate because of this, promotion drops it.
    """
    using = cursor.db.alias
    with outside_snapshot(using) as fresh:
        if fresh == using:
            return existing(cursor, topic, message_keys, locking=locking)
        own = existing(cursor, topic, message_keys)
        committed = session.run_statement(fresh, lambda c: existing(c, topic, message_keys), locks=False)
        found = committed | own
        if doubtful := sorted(own.keys() ^ committed.keys()):
            # READ UNCOMMITTED shows what this transaction has stored. It does not show what it has deleted, and what
            # others have deleted since its snapshot.
            there = session.run(fresh, lambda c: existing(c, topic, doubtful), level="READ UNCOMMITTED")
            # With another offset, an open transaction is storing the id again.
            found = {key: at for key, at in found.items() if key not in doubtful or there.get(key) == at}
        return found


def newest(using: str, topic: str) -> int:
    """Return the highest committed offset of a topic; 0 for an empty topic."""
    return newest_mark(using, topic).offset


@dataclass(frozen=True)
class MessageIdentity:
    """Identifies a message even after a restore, when another message may have its offset and id."""

    offset: int
    id: str = ""
    published_at: int = 0


def newest_mark(using: str, topic: str) -> MessageIdentity:
    """Return the newest committed message of a topic. Its offset is 0 if the topic is empty."""
    newest_row = f"SELECT `offset`, id, published_at {IN_TOPIC} ORDER BY `offset` DESC LIMIT 1"
    rows = session.fetch(using, newest_row, [topic])
    return MessageIdentity(int(rows[0][0]), str(rows[0][1]), int(rows[0][2])) if rows else MessageIdentity(0)


DUE = 0
"""The offset in a row of ``tails`` that reports the next due scheduled message."""
TAIL = (
    "SELECT topic, `offset`, partition_key, consumer_group FROM queue_messages FORCE INDEX (queue_messages_tail)"
    " WHERE topic = %s AND `offset` > %s ORDER BY `offset` LIMIT {limit:d}) UNION ALL ("
    f"SELECT %s, {DUE}, available_at - {NOW_MS}, '' FROM queue_messages FORCE INDEX (queue_messages_due)"
    " WHERE topic = %s AND failed_group IS NULL AND original_id IS NULL ORDER BY available_at LIMIT 1"
)
"""Reads ``queue_messages_tail`` above the offset, and the first entry of ``queue_messages_due``. For ``union``."""
FIRST_ROWS = (
    "SELECT m.partition_key, m.`offset` FROM queue_messages m FORCE INDEX (queue_messages_partition)"
    f" LEFT JOIN {STATE_OF_MESSAGE}"
    " WHERE m.topic = %s AND m.partition_key = %s AND m.`offset` > %s AND m.consumer_group IN ('', %s)"
    " AND s.message_offset IS NULL ORDER BY m.`offset` LIMIT {limit:d}"
)
"""Reads ``queue_messages_partition`` above the offset, and looks up delivery state by its primary key."""


def tails(using: str, positions: Sequence[tuple[str, int]], limit: int) -> list[Row]:
    """Return (topic, offset, partition, group) of rows above each position.

    For the next due scheduled message of each topic there is a row (topic, ``DUE``, milliseconds until then, '').
    """
    params = flat([topic, position, topic, scheduled_topic(topic)] for topic, position in positions)
    return session.fetch(using, union(TAIL.format(limit=limit), len(positions)), params)


def within(
    using: str, topic: str, ranges: Sequence[tuple[int, int]], limit: int
) -> list[tuple[int, str, str]]:
    """Return (offset, partition, consumer group) of up to ``limit`` rows inside the ranges, in offset order."""
    where = " OR ".join(["`offset` BETWEEN %s AND %s"] * len(ranges))
    rows = session.fetch(
        using,
        f"SELECT `offset`, partition_key, consumer_group {IN_TOPIC} AND ({where}) ORDER BY `offset` LIMIT {limit:d}",
        [topic, *flat(ranges)],
    )
    return [(int(offset), partition, group) for offset, partition, group in rows]


def all_topics(using: str, first: int, last: int, limit: int) -> list[tuple[int, str, str, str]]:
    """Return (offset, partition, consumer group, topic) of up to ``limit`` rows of any topic, in offset order."""
    rows = session.fetch(
        using,
        "SELECT `offset`, partition_key, consumer_group, topic FROM queue_messages FORCE INDEX (PRIMARY)"
        f" WHERE `offset` BETWEEN %s AND %s ORDER BY `offset` LIMIT {limit:d}",
        [first, last],
    )
    return [(int(offset), partition, group, topic) for offset, partition, group, topic in rows]


def unleased_partitions_with_backlog(
    using: str, group: str, topic: str, start: int, after: str, limit: int
) -> tuple[list[str], str]:
    """Return partitions after ``after`` with a backlog and no lease, and where to continue ('' at the end)."""
    found = partitions(topic).next(using, after, limit)
    if not found:
        return [], ""
    rows = session.fetch(
        using,
        f"SELECT p.partition_key FROM {dialect.names_table('p')}"
        " LEFT JOIN queue_partition_leases l FORCE INDEX (queue_leases_partition)"
        " ON l.consumer_group = %s AND l.topic = %s AND l.partition_key = p.partition_key"
        " LEFT JOIN queue_offsets o FORCE INDEX (queue_offsets_partition)"
        " ON o.consumer_group = %s AND o.topic = %s AND o.partition_key = p.partition_key"
        f" WHERE l.id IS NULL AND ({NEWEST}) > GREATEST(COALESCE(o.offset_acked, 0), %s)",
        [json.dumps(found), group, topic, group, topic, topic, start],
    )
    with_backlog = {partition for (partition,) in rows}
    return [name for name in found if name in with_backlog], found[-1] if len(found) == limit else ""


def first_rows(
    using: str, group: str, topic: str, positions: Sequence[tuple[str, int]], limit: int
) -> list[tuple[str, int]]:
    """Return (partition, offset) of the group's first rows above each position that have no delivery state."""
    query = union(FIRST_ROWS.format(limit=limit), len(positions))
    params = flat([group, topic, partition, offset, group] for partition, offset in positions)
    return [(partition, int(offset)) for partition, offset in session.fetch(using, query, params)]


def times_near(using: str, topic: str, offset: int, upto: int, limit: int) -> tuple[int, int] | None:
    """Return the least and the greatest ``published_at`` of the rows next to an offset; None if there are none.

    It reads up to ``limit`` rows at or below the offset, and up to ``limit`` rows from there to ``upto``.
    """
    rows = f"SELECT published_at {IN_TOPIC} AND `offset` BETWEEN %s AND %s ORDER BY `offset`"
    ((earliest, latest),) = session.fetch(
        using,
        "SELECT MIN(published_at), MAX(published_at) FROM"
        f" (({rows} DESC LIMIT {limit:d}) UNION ALL ({rows} ASC LIMIT {limit:d})) near",
        [topic, 0, offset, topic, offset + 1, upto],
    )
    return None if latest is None else (int(earliest), int(latest))


def first_since(using: str, topic: str, above: int, upto: int, at_ms: int) -> int | None:
    """Return the first offset in a range whose row was published at ``at_ms`` or later; None if there is none."""
    rows = session.fetch(
        using,
        f"SELECT `offset` {IN_TOPIC} AND `offset` > %s AND `offset` <= %s AND published_at >= %s"
        " ORDER BY `offset` LIMIT 1",
        [topic, above, upto, at_ms],
    )
    return int(rows[0][0]) if rows else None


def last_until(using: str, topic: str, upto: int, at_ms: int) -> int:
    """Return the last offset up to ``upto`` whose row was published before ``at_ms``; 0 if there is none."""
    rows = session.fetch(
        using,
        f"SELECT `offset` {IN_TOPIC} AND `offset` <= %s AND published_at < %s ORDER BY `offset` DESC LIMIT 1",
        [topic, upto, at_ms],
    )
    return int(rows[0][0]) if rows else 0


def latest_published(using: str, topic: str, above: int, upto: int) -> int | None:
    """Return the offset of the row in a range with the latest publication time; of several, the highest."""
    of_range = f"{IN_TOPIC} AND `offset` > %s AND `offset` <= %s"
    ((found,),) = session.fetch(
        using,
        f"SELECT MAX(`offset`) {of_range} AND published_at = (SELECT MAX(published_at) {of_range})",
        [topic, above, upto] * 2,
    )
    return None if found is None else int(found)
