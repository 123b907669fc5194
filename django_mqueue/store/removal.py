"""Delete a group's leases, delivery state and positions for a topic, in bounded pieces.

A mark records that a removal is not finished: a row of ``queue_offsets`` next to the topic's row, named after the
group. A transaction locks the topic's row to set or delete the mark. It locks the mark or the topic's row to delete a
piece. While a registered group has a mark, its registration is ``REMOVING``. Nothing is claimed then, so no delivery
state or position is added.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db import DatabaseError
from django.db.backends.utils import CursorWrapper

from .connection import errors, session
from .connection.dialect import NOW_MS, flat, placeholders, values_table
from .offsets import COLUMNS

ROWS = 1000
"""Maximum rows that a statement deletes."""

PREFIX = "removal "

_MARK = (
    "FORCE INDEX (queue_offsets_partition) WHERE consumer_group = '' AND topic = %s AND partition_key = %s"
)

Reached = Mapping[str, tuple[Any, ...]]
"""For each table, the key of the last deleted row. The next piece begins after it, to avoid reading deleted rows."""

START: Reached = {
    "queue_partition_leases": ("",),
    "queue_delivery_state": ("", -1),
    "queue_offsets": ("",),
}
"""Leases are first: without a lease, no acknowledgement of an open delivery is accepted."""

_BY_ID = {"queue_partition_leases": "queue_leases_partition", "queue_offsets": "queue_offsets_partition"}


def piece(cursor: CursorWrapper, group: str, topic: str, reached: Reached) -> Reached | None:
    """Delete up to ``ROWS`` free rows of the first table with rows. Return the new ``reached``; None at the end."""
    for table, last in reached.items():
        by_id = table in _BY_ID
        found = (_ids if by_id else _states)(cursor, table, group, topic, last)
        if found:
            _delete(cursor, table, group, topic, [row[:1] if by_id else row for row in found])
            return {**reached, table: max(row[1:] if by_id else row for row in found)}
    return None


# The searches lock nothing, and have no ORDER BY: MariaDB would sort all remaining rows, and MySQL would
# scan the index of a small table. A forced index returns rows in its order. ``is_done`` finds a row that was missed.


def _ids(
    cursor: CursorWrapper, table: str, group: str, topic: str, last: tuple[Any, ...]
) -> list[tuple[Any, ...]]:
    cursor.execute(
        f"SELECT id, partition_key FROM {table} FORCE INDEX ({_BY_ID[table]})"
        f" WHERE consumer_group = %s AND topic = %s AND partition_key > %s LIMIT {ROWS:d}",
        [group, topic, *last],
    )
    return list(cursor.fetchall())


def _states(
    cursor: CursorWrapper, table: str, group: str, topic: str, last: tuple[Any, ...]
) -> list[tuple[Any, ...]]:
    partition, offset = last
    cursor.execute(
        f"SELECT partition_key, message_offset FROM {table} FORCE INDEX (PRIMARY)"
        " WHERE consumer_group = %s AND topic = %s"
        f" AND (partition_key > %s OR (partition_key = %s AND message_offset > %s)) LIMIT {ROWS:d}",
        [group, topic, partition, partition, offset],
    )
    return list(cursor.fetchall())


def _delete(
    cursor: CursorWrapper, table: str, group: str, topic: str, rows: Sequence[tuple[Any, ...]]
) -> None:
    """Delete rows that are not locked. Join the keys: with an IN list, servers scan a small table."""
    columns: tuple[str, ...] = ("o",) if table in _BY_ID else ("p", "o")
    key, on, params = "t.id", "t.id = doomed.o", list[str]()
    if table not in _BY_ID:
        key, params = "t.partition_key, t.message_offset", [group, topic]
        on = (
            "t.consumer_group = %s AND t.topic = %s"
            " AND t.partition_key = doomed.p AND t.message_offset = doomed.o"
        )
    rest = f"doomed STRAIGHT_JOIN {table} t"
    cursor.execute(
        f"SELECT {key} FROM {values_table(columns, len(rows))} {rest} FORCE INDEX (PRIMARY) ON {on}"
        " FOR UPDATE SKIP LOCKED",
        [*flat(rows), *params],
    )
    if free := cursor.fetchall():
        cursor.execute(
            f"DELETE t FROM {values_table(columns, len(free))} {rest} FORCE INDEX (PRIMARY) ON {on}",
            [*flat(free), *params],
        )


def is_done(cursor: CursorWrapper, group: str, topic: str, *, wait: bool = False) -> bool:
    """Return whether no table has rows of the group, committed or not, except its registration.

    ``wait``: wait for a locked row. Otherwise return False for a locked row.
    """
    for table in START:
        index = _BY_ID.get(table, "PRIMARY")
        try:
            # LIMIT 2, because one may be the registration. Only equality, or MySQL would scan the whole index.
            cursor.execute(
                f"SELECT partition_key FROM {table} FORCE INDEX ({index})"
                f" WHERE consumer_group = %s AND topic = %s LIMIT 2 FOR UPDATE{'' if wait else ' NOWAIT'}",
                [group, topic],
            )
        except DatabaseError as error:
            if wait or not errors.is_locked(error):
                raise
            return False
        if any(partition for (partition,) in cursor.fetchall()):
            return False
    return True


def note(cursor: CursorWrapper, group: str, topic: str) -> None:
    """Set the mark. The topic must be locked."""
    cursor.execute(
        f"INSERT INTO queue_offsets {COLUMNS} VALUES ('', %s, %s, 0, 0, 0, {NOW_MS})"
        " ON DUPLICATE KEY UPDATE offset_acked = queue_offsets.offset_acked",
        [topic, PREFIX + group],
    )


def forget(cursor: CursorWrapper, group: str, topic: str) -> None:
    """Delete the mark, if it exists. The topic must be locked."""
    cursor.execute(f"DELETE o FROM queue_offsets o {_MARK}", [topic, PREFIX + group])


def lock(cursor: CursorWrapper, group: str, topic: str, *, wait: bool) -> bool:
    """Lock the mark. Return False if it does not exist, or if it is locked and ``wait`` is false."""
    cursor.execute(
        f"SELECT 1 FROM queue_offsets {_MARK} FOR UPDATE{'' if wait else ' SKIP LOCKED'}",
        [topic, PREFIX + group],
    )
    return cursor.fetchone() is not None


def group_of(partition_key: str) -> str | None:
    """Return the group of a mark; None for the key of another row."""
    return partition_key.removeprefix(PREFIX) if partition_key.startswith(PREFIX) else None


def unfinished(using: str, topic: str) -> list[str]:
    """Return up to 100 groups whose removal from the topic is not finished."""
    rows = session.fetch(
        using,
        "SELECT partition_key FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
        f" WHERE consumer_group = '' AND topic = %s AND partition_key LIKE '{PREFIX}%%' LIMIT 100",
        [topic],
    )
    return [str(name).removeprefix(PREFIX) for (name,) in rows]


def unfinished_among(using: str, pairs: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return pairs (topic, group) whose removal is not finished, perhaps more than the given ones."""
    topics, keys = [topic for topic, _ in pairs], [PREFIX + group for _, group in pairs]
    rows = session.fetch(
        using,
        "SELECT topic, partition_key FROM queue_offsets FORCE INDEX (queue_offsets_partition) WHERE consumer_group = ''"
        f" AND topic IN ({placeholders(topics)}) AND partition_key IN ({placeholders(keys)})",
        [*topics, *keys],
    )
    return {(topic, str(name).removeprefix(PREFIX)) for topic, name in rows}
