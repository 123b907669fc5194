"""The positions of a group, in ``queue_offsets``: its watermark and its scan position in each partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from .connection import session
from .connection.dialect import NOW_MS, STATE_OF_MESSAGE, TOPIC_ROW, flat, is_mariadb, placeholders, union
from .offsets import COLUMNS


@dataclass(frozen=True)
class Position:
    """A group's position: all up to ``acked`` is acknowledged, and all up to ``scanned`` was delivered."""

    acked: int
    scanned: int


FIRST_OPEN = (
    "SELECT m.partition_key, m.`offset`, s.message_offset IS NOT NULL, 1"
    f" FROM queue_messages m FORCE INDEX (queue_messages_partition) LEFT JOIN {STATE_OF_MESSAGE}"
    " WHERE m.topic = %s AND m.partition_key = %s AND m.`offset` > %s AND m.`offset` <= %s"
    " AND m.consumer_group IN ('', %s) AND (s.acked IS NULL OR s.acked = 0) ORDER BY m.`offset` LIMIT 1"
)
"""Reads ``queue_messages_partition`` above the offset, and looks up delivery state by its primary key."""
FIRST_UNDELIVERED = (
    "SELECT m.partition_key, m.`offset` FROM queue_messages m FORCE INDEX (queue_messages_partition)"
    f" LEFT JOIN {STATE_OF_MESSAGE}"
    " WHERE m.topic = %s AND m.partition_key = %s AND m.`offset` > %s AND m.`offset` <= %s"
    " AND m.consumer_group IN ('', %s) AND s.message_offset IS NULL ORDER BY m.`offset` LIMIT 1"
)
"""As ``FIRST_OPEN``."""
BACKLOG = (
    "{first_open} UNION ALL (SELECT partition_key, offset_acked, scan_offset, 0"
    " FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
    " WHERE consumer_group = %s AND topic = %s AND partition_key IN ({partitions}))"
    f" UNION ALL (SELECT partition_key, offset_acked, 0, 0 FROM queue_offsets {TOPIC_ROW})"
)
"""Adds the positions and the topic's row, by ``queue_offsets_partition``, to ``FIRST_OPEN`` of each partition."""
_ADVANCE = (
    f"INSERT INTO queue_offsets {COLUMNS} VALUES {{{{rows}}}}{{alias}} ON DUPLICATE KEY UPDATE"
    " offset_acked = GREATEST(queue_offsets.offset_acked, {acked}),"
    " scan_offset = GREATEST(queue_offsets.scan_offset, {scanned}), updated_at = {now}"
)
ADVANCE_ON_MARIADB = _ADVANCE.format(
    alias="", acked="VALUES(offset_acked)", scanned="VALUES(scan_offset)", now="VALUES(updated_at)"
)
ADVANCE_ON_MYSQL = _ADVANCE.format(
    alias=" AS fresh", acked="fresh.offset_acked", scanned="fresh.scan_offset", now="fresh.updated_at"
)
"""Finds a position that exists by the unique index ``queue_offsets_partition``."""


def positions(
    using: str, group: str, topic: str, partitions: Sequence[str], start: int
) -> dict[str, Position]:
    """Return the position of each partition. A partition without a row is at the registration's ``start``."""
    rows = session.fetch(
        using,
        "SELECT partition_key, offset_acked, scan_offset FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key IN ({placeholders(partitions)})",
        [group, topic, *partitions],
    )
    found = {partition: position(start, acked, scanned) for partition, acked, scanned in rows}
    return {p: found.get(p, Position(start, start)) for p in partitions}


def position(start: int, acked: int, scanned: int) -> Position:
    """Return the position of a row, in a group that begins at ``start``."""
    return Position(max(int(acked), start), max(int(acked), int(scanned), start))


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
    cursor.execute(
        BACKLOG.format(first_open=union(FIRST_OPEN, len(above)), partitions=placeholders(names)),
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
    cursor.execute(union(FIRST_UNDELIVERED, len(above)), _params(group, topic, above, settled))
    return {partition: int(offset) for partition, offset in cursor.fetchall()}


def _params(group: str, topic: str, above: Sequence[tuple[str, int]], settled: int) -> list[str | int]:
    return flat([group, topic, partition, offset, settled, group] for partition, offset in above)


def advance(cursor: CursorWrapper, group: str, topic: str, positions: Sequence[tuple[str, Position]]) -> None:
    """Move positions forward, never back."""
    rows = ", ".join([f"(%s, %s, %s, %s, %s, 0, {NOW_MS})"] * len(positions))
    statement = ADVANCE_ON_MARIADB if is_mariadb(cursor.db.alias) else ADVANCE_ON_MYSQL
    cursor.execute(
        statement.format(rows=rows),
        flat([group, topic, partition, one.acked, one.scanned] for partition, one in sorted(positions)),
    )
