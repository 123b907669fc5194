"""Heartbeats, ``queue_subscriber_heartbeats``: one row for each subscriber shows whether it is alive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.backends.utils import CursorWrapper

from .connection import session, session_lock
from .connection.dialect import NOW_MS, placeholders
from .leases import Holder

FORGET_DEAD_MS = 86_400_000
_INDEX = "FORCE INDEX (queue_heartbeats_subscriber)"
_ROW = " WHERE consumer_group = %s AND topic = %s AND subscriber_name = %s"
_MINE = f"{_ROW} AND incarnation = %s FOR UPDATE SKIP LOCKED"
HEARTBEAT = (
    "INSERT INTO queue_subscriber_heartbeats"
    " (id, consumer_group, topic, subscriber_name, incarnation, heartbeat_at, session_lock)"
    f" SELECT id, consumer_group, topic, subscriber_name, incarnation, {NOW_MS}, {{session_lock}}"
    f" FROM queue_subscriber_heartbeats {_INDEX}{_MINE} ON DUPLICATE KEY UPDATE"
    " heartbeat_at = VALUES(heartbeat_at), deregistered_at = NULL,"
    # Always true. It returns the session's number as ``lastrowid``.
    " session_lock = IF(LAST_INSERT_ID(CONNECTION_ID()), VALUES(session_lock), '')"
)
"""Finds the row by ``queue_heartbeats_subscriber``, and updates it, because its primary key is a duplicate."""


def announce(cursor: CursorWrapper, holder: Holder) -> str | None:
    """Write this incarnation into the subscriber's row. Return the incarnation that was there before, if any."""
    names = [holder.group, holder.topic, holder.name]
    cursor.execute(f"SELECT 1 FROM queue_subscriber_heartbeats{_ROW}", names)
    is_missing, row = cursor.fetchone() is None, None
    while row is None:  # A second time if another worker deletes the old row meanwhile.
        if is_missing:
            # Only if the row is missing: for a duplicate the server also locks the gap before it.
            cursor.execute(
                "INSERT INTO queue_subscriber_heartbeats (consumer_group, topic, subscriber_name, incarnation,"
                " heartbeat_at) VALUES (%s, %s, %s, '', 0) ON DUPLICATE KEY UPDATE incarnation = incarnation",
                names,
            )
        cursor.execute(
            f"SELECT incarnation FROM queue_subscriber_heartbeats {_INDEX}{_ROW} FOR UPDATE", names
        )
        is_missing, row = True, cursor.fetchone()
    before = str(row[0])
    lock, params = _session_lock(cursor.db.alias)
    cursor.execute(
        f"UPDATE queue_subscriber_heartbeats {_INDEX} SET incarnation = %s, heartbeat_at = {NOW_MS},"
        f" deregistered_at = NULL, session_lock = {lock}{_ROW}",
        [holder.incarnation, *params, holder.group, holder.topic, holder.name],
    )
    return before or None


def _session_lock(using: str) -> tuple[str, list[Any]]:
    """Return SQL, with its parameters, for the value of ``session_lock``."""
    lock = session_lock.of(using)
    return lock.held_name() if lock else ("''", [])


def beat(using: str, holder: Holder, *, is_leaving: bool = False) -> bool:
    """Write a heartbeat, unless the row is locked. Return False if the row is gone or another incarnation's.

    ``is_leaving``: the subscriber finishes what runs, and wants no share of the partitions. An UPDATE would wait for
    a locked row. This INSERT ... SELECT skips it, and otherwise updates the duplicate.
    """
    lock = session_lock.of(using)
    name, params = _session_lock(using)
    if is_leaving:
        name = f"CONCAT({name}, '{session_lock.LEAVING}')"

    def work(cursor: CursorWrapper) -> bool:
        cursor.execute(
            HEARTBEAT.format(session_lock=name),
            [*params, holder.group, holder.topic, holder.name, holder.incarnation],
        )
        if cursor.rowcount and lock:
            lock.check_session(int(cursor.lastrowid))
        return bool(cursor.rowcount)

    return session.run_statement(using, work, latest=True) or incarnation(using, holder) == holder.incarnation


def incarnation(using: str, holder: Holder, alive_ms: int | None = None) -> str | None:
    """Return the incarnation in the subscriber's row. ``alive_ms``: only if it has not deregistered or expired."""
    alive, params = "", list[int]()
    if alive_ms is not None:
        alive, params = f" AND deregistered_at IS NULL AND heartbeat_at > {NOW_MS} - %s", [alive_ms]
    rows = session.fetch(
        using,
        f"SELECT incarnation FROM queue_subscriber_heartbeats{_ROW}{alive}",
        [holder.group, holder.topic, holder.name, *params],
    )
    return str(rows[0][0]) if rows else None


@dataclass(frozen=True)
class Member:
    """A subscriber whose heartbeat has not expired. ``since_heartbeat_ms``: milliseconds since this heartbeat.

    ``lock_is_free``: its session lock is free (see ``session_lock``), so the session that held it has ended.
    ``is_leaving``: it finishes what runs, and wants no share of the partitions.
    """

    name: str
    incarnation: str
    since_heartbeat_ms: int
    lock_is_free: bool
    is_leaving: bool


def members(using: str, group: str, topic: str, lease_ms: int) -> list[str]:
    """Return the names of the live subscribers, sorted. A heartbeat expires after ``lease_ms``."""
    rows = session.fetch(
        using,
        "SELECT subscriber_name FROM queue_subscriber_heartbeats WHERE consumer_group = %s AND topic = %s"
        f" AND deregistered_at IS NULL AND heartbeat_at > {NOW_MS} - %s ORDER BY subscriber_name",
        [group, topic, lease_ms],
    )
    return [name for (name,) in rows]


def lock_dead(cursor: CursorWrapper, holder: Holder, age_ms: int) -> bool:
    """Lock the row of a subscriber whose session lock is free and whose heartbeat is older than ``age_ms``.

    Return False if there is no such row, or if another transaction has locked it.
    """
    cursor.execute(
        f"SELECT 1 FROM queue_subscriber_heartbeats {_INDEX}{_ROW} AND incarnation = %s AND deregistered_at IS NULL"
        f" AND heartbeat_at <= {NOW_MS} - %s AND {session_lock.is_free(cursor.db.alias)} FOR UPDATE SKIP LOCKED",
        [holder.group, holder.topic, holder.name, holder.incarnation, age_ms],
    )
    return cursor.fetchone() is not None


def mark_dead(cursor: CursorWrapper, holder: Holder) -> None:
    """Record that a subscriber is dead. The row keeps the name of its session lock, which ``deregister`` empties."""
    cursor.execute(
        f"UPDATE queue_subscriber_heartbeats {_INDEX} SET deregistered_at = {NOW_MS}{_ROW}",
        [holder.group, holder.topic, holder.name],
    )


def beats(cursor: CursorWrapper, holder: Holder, alive_ms: int) -> dict[str, int]:
    """Return the last heartbeat of each other live subscriber of this group and topic (epoch milliseconds)."""
    cursor.execute(
        f"SELECT subscriber_name, heartbeat_at FROM queue_subscriber_heartbeats {_INDEX}"
        " WHERE consumer_group = %s AND topic = %s AND incarnation <> %s AND deregistered_at IS NULL"
        f" AND heartbeat_at > {NOW_MS} - %s",
        [holder.group, holder.topic, holder.incarnation, alive_ms],
    )
    return {str(name): int(at) for name, at in cursor.fetchall()}


def delete_others(cursor: CursorWrapper, holder: Holder) -> None:
    """Delete the rows of all other subscribers of this group and topic that have not deregistered."""
    cursor.execute(
        f"DELETE h FROM queue_subscriber_heartbeats h {_INDEX} WHERE consumer_group = %s AND topic = %s"
        " AND incarnation <> %s AND deregistered_at IS NULL",
        [holder.group, holder.topic, holder.incarnation],
    )


def is_replaced(cursor: CursorWrapper, holder: Holder) -> bool:
    """Return whether the group has heartbeat rows on this topic, but no active one of this incarnation."""
    cursor.execute(
        "SELECT COUNT(*), COALESCE(SUM(incarnation = %s AND deregistered_at IS NULL), 0)"
        f" FROM queue_subscriber_heartbeats {_INDEX} WHERE consumer_group = %s AND topic = %s",
        [holder.incarnation, holder.group, holder.topic],
    )
    rows, mine = cursor.fetchone()
    return bool(rows) and not mine


def deregister(cursor: CursorWrapper, holder: Holder) -> None:
    """Record that this subscriber has left. If the row is locked, the heartbeat expires instead."""
    cursor.execute(
        f"SELECT 1 FROM queue_subscriber_heartbeats {_INDEX}{_MINE}",
        [holder.group, holder.topic, holder.name, holder.incarnation],
    )
    if cursor.fetchone():
        cursor.execute(
            f"UPDATE queue_subscriber_heartbeats {_INDEX} SET deregistered_at = {NOW_MS}, session_lock = ''{_ROW}",
            [holder.group, holder.topic, holder.name],
        )


def forget_dead(using: str, group: str, topic: str) -> None:
    """Delete rows whose heartbeat and deregistration are older than ``FORGET_DEAD_MS``. Skip locked rows.

    By default, each start of a subscriber adds a row with a new name.
    """

    def work(cursor: CursorWrapper) -> None:
        cursor.execute(
            f"SELECT id FROM queue_subscriber_heartbeats {_INDEX} WHERE consumer_group = %s AND topic = %s"
            f" AND GREATEST(heartbeat_at, COALESCE(deregistered_at, 0)) < {NOW_MS} - %s FOR UPDATE SKIP LOCKED",
            [group, topic, FORGET_DEAD_MS],
        )
        dead = [number for (number,) in cursor.fetchall()]
        if dead:
            cursor.execute(
                "DELETE h FROM queue_subscriber_heartbeats h FORCE INDEX (PRIMARY)"
                f" WHERE h.id IN ({placeholders(dead)})",
                dead,
            )

    session.run(using, work)
