"""Garbage collection: find rows that are no longer needed, by index, and delete them by primary key, in small batches.

Each statement that locks rows names its index (a DELETE can do so only in the form with FROM). Otherwise both servers
sometimes scan the whole table, for long lists or in small tables, and wait for every locked row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from . import leases
from .connection import dialect, session
from .connection.dialect import IN_TOPIC, NOW_MS, STATE_OF_MESSAGE, TOPIC_ROW, placeholders
from .connection.session import Row
from .leases import Holder
from .offsets import READS_LOG, REMOVING
from .queries.skip_scan import NEWEST


def lock_topic_if_due(cursor: CursorWrapper, topic: str, interval_ms: int) -> tuple[int, int] | None:
    """Lock the topic's row if its next pass is due. Return (settled offset, cursor); None if not due, or locked.

    It is also due if the last one ended in the future: the clock was set back.
    """
    cursor.execute(
        f"SELECT offset_acked, scan_offset, updated_at <= {NOW_MS} - %s OR updated_at > {NOW_MS}"
        f" FROM queue_offsets {TOPIC_ROW} FOR UPDATE SKIP LOCKED",
        [interval_ms, topic],
    )
    row = cursor.fetchone()
    return (int(row[0]), int(row[1])) if row and row[2] else None


def move_cursor(cursor: CursorWrapper, topic: str, to: int, *, done: bool) -> None:
    """Store the offset where the next batch begins. ``done`` ends the pass and starts the wait for the next one."""
    cursor.execute(
        "UPDATE queue_offsets FORCE INDEX (queue_offsets_partition)"
        f" SET scan_offset = %s, updated_at = {NOW_MS if done else 'updated_at'}"
        " WHERE consumer_group = '' AND topic = %s AND partition_key = ''",
        [to, topic],
    )


@dataclass(frozen=True)
class Groups:
    """The registered groups: starts, groups that read the log directly, and groups in a reset."""

    starts: Mapping[str, int]
    readers: frozenset[str]
    resetting: frozenset[str]
    has_replies: bool = False

    def blocking(self, target: str) -> Collection[str]:
        """Return the groups that must finish a row for ``target`` ('': all groups) before it may be deleted."""
        if not target:
            return self.starts
        return self.readers | ({target} & self.starts.keys())


def groups(cursor: CursorWrapper, topic: str, replies: str | None = None) -> Groups:
    """Return the registered groups, and whether the topic ``replies`` holds rows (False without groups)."""
    replies_exist, params = "0", list[str]()
    if replies is not None:
        replies_exist = f"EXISTS (SELECT 1 {IN_TOPIC})"
        params.append(replies)
    cursor.execute(
        f"SELECT consumer_group, offset_acked, scan_offset, {replies_exist}"
        " FROM queue_offsets FORCE INDEX (queue_offsets_groups)"
        " WHERE topic = %s AND partition_key = '' AND consumer_group > ''",
        [*params, topic],
    )
    rows = cursor.fetchall()
    readers, resetting = (
        frozenset(group for group, _, scanned, _ in rows if int(scanned) == sign)
        for sign in (READS_LOG, REMOVING)
    )
    starts = {group: int(start) for group, start, _, _ in rows}
    return Groups(starts, readers, resetting, any(has_replies for *_, has_replies in rows))


def starts(cursor: CursorWrapper, topic: str) -> Mapping[str, int]:
    """Return the start offset of each registered group."""
    return groups(cursor, topic).starts


def page(cursor: CursorWrapper, topic: str, above: int, settled: int, limit: int) -> list[Row]:
    """Return (offset, partition, target group) of the next ``limit`` settled rows above ``above``."""
    cursor.execute(
        f"SELECT `offset`, partition_key, consumer_group {IN_TOPIC} AND `offset` > %s AND `offset` <= %s"
        f" ORDER BY `offset` LIMIT {limit:d}",
        [topic, above, settled],
    )
    return list(cursor.fetchall())


def watermarks(cursor: CursorWrapper, topic: str, partitions: Sequence[str]) -> dict[tuple[str, str], int]:
    """Return the watermark of each (partition, group) that has one."""
    cursor.execute(
        "SELECT partition_key, consumer_group, offset_acked FROM queue_offsets FORCE INDEX (queue_offsets_groups)"
        f" WHERE topic = %s AND partition_key IN ({placeholders(partitions)}) AND consumer_group > ''",
        [topic, *partitions],
    )
    return {(partition, group): int(offset) for partition, group, offset in cursor.fetchall()}


def old_enough(cursor: CursorWrapper, offsets: Sequence[int], retention_ms: int) -> list[int]:
    """Return the offsets whose messages are older than the retention."""
    cursor.execute(
        f"SELECT `offset` FROM queue_messages WHERE `offset` IN ({placeholders(offsets)})"
        f" AND published_at <= {NOW_MS} - %s",
        [*offsets, retention_ms],
    )
    return [int(offset) for (offset,) in cursor.fetchall()]


def lock_unlocked(cursor: CursorWrapper, offsets: Sequence[int]) -> set[int]:
    """Lock rows, and their entries in the index of ids, which publishers use. Skip locked ones. Return the offsets."""
    cursor.execute(
        f"SELECT m.`offset` FROM {dialect.values_table(('o',), len(offsets))} doomed"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = doomed.o"
        " STRAIGHT_JOIN queue_messages d FORCE INDEX (queue_messages_dedupe) ON d.topic = m.topic"
        " AND d.partition_key = m.partition_key AND d.id = m.id AND d.consumer_group = m.consumer_group"
        " FOR UPDATE SKIP LOCKED",
        list(offsets),
    )
    return {int(offset) for (offset,) in cursor.fetchall()}


def delete(cursor: CursorWrapper, topic: str, groups: Sequence[str], offsets: Sequence[int]) -> None:
    """Delete rows of the log, and the delivery state that ``groups`` keep for them.

    Each row is found by its key. With an IN list of offsets, a server may scan the table and wait for publishers.
    """
    doomed, numbers = dialect.numbers_table("doomed", "o"), json.dumps(list(offsets))
    for group in groups:
        cursor.execute(
            f"DELETE s FROM {doomed} STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = doomed.o"
            f" STRAIGHT_JOIN {STATE_OF_MESSAGE} WHERE m.topic = %s",
            [numbers, group, topic],
        )
    cursor.execute(
        f"DELETE m FROM {doomed} STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = doomed.o",
        [numbers],
    )


def give_up_drained(using: str, holder: Holder, partitions: Sequence[str]) -> list[str]:
    """Delete this holder's leases on drained partitions, and unneeded positions. Return those without a lease now."""

    def work(cursor: CursorWrapper) -> list[str]:
        if gone := leases.delete_drained(cursor, holder, partitions):
            delete_empty_positions(cursor, holder.topic, gone)
        return gone

    return session.run(using, work)


def delete_empty_positions(cursor: CursorWrapper, topic: str, partitions: Sequence[str]) -> None:
    """Delete the positions of partitions that have no rows in the log and no lease, if they are not locked.

    A separate statement reads the log: inside the DELETE it would wait for every publisher with an open transaction.
    Workers need no position to find a message that such a publisher commits afterwards.
    """
    cursor.execute(
        f"SELECT p.partition_key, ({NEWEST}) FROM {dialect.names_table('p')}",
        [topic, json.dumps(list(partitions))],
    )
    empty = sorted(partition for partition, newest in cursor.fetchall() if newest is None)
    if empty:
        cursor.execute(
            "SELECT o.id FROM queue_offsets o FORCE INDEX (queue_offsets_groups)"
            " WHERE o.topic = %s AND o.consumer_group > ''"
            f" AND o.partition_key IN ({placeholders(empty)})"
            " AND NOT EXISTS (SELECT 1 FROM queue_partition_leases l FORCE INDEX (queue_leases_partition)"
            " WHERE l.consumer_group = o.consumer_group"
            " AND l.topic = o.topic AND l.partition_key = o.partition_key) FOR UPDATE SKIP LOCKED",
            [topic, *empty],
        )
        if unneeded := [number for (number,) in cursor.fetchall()]:
            cursor.execute(
                f"DELETE o FROM queue_offsets o FORCE INDEX (PRIMARY) WHERE o.id IN ({placeholders(unneeded)})",
                unneeded,
            )
