"""Read and move the positions of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from .connection.dialect import NOW_MS, STATE_OF_MESSAGE, TOPIC_ROW, flat, is_mariadb, placeholders, union
from .offsets import COLUMNS, Position, position

_OPEN = (
    "SELECT m.partition_key, m.`offset`, s.message_offset IS NOT NULL, 1"
    f" FROM queue_messages m FORCE INDEX (queue_messages_partition) LEFT JOIN {STATE_OF_MESSAGE}"
    " WHERE m.topic = %s AND m.partition_key = %s AND m.`offset` > %s AND m.`offset` <= %s"
    " AND m.consumer_group IN ('', %s) AND (s.acked IS NULL OR s.acked = 0) ORDER BY m.`offset` LIMIT 1"
)


@dataclass(frozen=True)
class PartitionProgress:
    """By partition, the first open message (offset, has delivery state) and the position; and the settled offset."""

    opens: dict[str, tuple[int, bool]]
    positions: dict[str, Position]
    settled: int


def backlog(
    cursor: CursorWrapper, group: str, topic: str, above: Sequence[tuple[str, int]], settled: int, start: int
) -> PartitionProgress:
    """Return a group's backlog above a position in each partition, up to ``settled``, from one snapshot."""
    names = [partition for partition, _ in above]
    positions_query = (
        "SELECT partition_key, offset_acked, scan_offset, 0 FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({placeholders(names)})"
    )
    settled_query = f"SELECT partition_key, offset_acked, 0, 0 FROM queue_offsets {TOPIC_ROW}"
    cursor.execute(
        f"{union(_OPEN, len(above))} UNION ALL ({positions_query}) UNION ALL ({settled_query})",
        [*_params(group, topic, above, settled), group, topic, *names, topic],
    )
    opens, positions, stored_settled = dict[str, tuple[int, bool]](), dict[str, Position](), 0
    for partition, offset, more, is_open in cursor.fetchall():
        if is_open:
            opens[partition] = (int(offset), bool(more))
        elif partition:
            positions[partition] = position(start, offset, more)
        else:
            stored_settled = int(offset)
    return PartitionProgress(opens, positions, stored_settled)


def first_undelivered(
    cursor: CursorWrapper, group: str, topic: str, above: Sequence[tuple[str, int]], settled: int
) -> dict[str, int]:
    """Return each partition's first message above the position that has no delivery state, if there is one."""
    branch = (
        "SELECT m.partition_key, m.`offset` FROM queue_messages m FORCE INDEX (queue_messages_partition)"
        f" LEFT JOIN {STATE_OF_MESSAGE}"
        " WHERE m.topic = %s AND m.partition_key = %s AND m.`offset` > %s AND m.`offset` <= %s"
        " AND m.consumer_group IN ('', %s) AND s.message_offset IS NULL ORDER BY m.`offset` LIMIT 1"
    )
    cursor.execute(union(branch, len(above)), _params(group, topic, above, settled))
    return {partition: int(offset) for partition, offset in cursor.fetchall()}


def _params(group: str, topic: str, above: Sequence[tuple[str, int]], settled: int) -> list[str | int]:
    return flat([group, topic, partition, offset, settled, group] for partition, offset in above)


def advance(cursor: CursorWrapper, group: str, topic: str, positions: Sequence[tuple[str, Position]]) -> None:
    """Move positions forward, never back."""
    rows = ", ".join([f"(%s, %s, %s, %s, %s, 0, {NOW_MS})"] * len(positions))
    alias, new = ("", "VALUES({})") if is_mariadb(cursor.db.alias) else (" AS fresh", "fresh.{}")
    cursor.execute(
        f"INSERT INTO queue_offsets {COLUMNS} VALUES {rows}{alias} ON DUPLICATE KEY UPDATE"
        f" offset_acked = GREATEST(queue_offsets.offset_acked, {new.format('offset_acked')}),"
        f" scan_offset = GREATEST(queue_offsets.scan_offset, {new.format('scan_offset')}),"
        f" updated_at = {new.format('updated_at')}",
        flat([group, topic, partition, one.acked, one.scanned] for partition, one in sorted(positions)),
    )
