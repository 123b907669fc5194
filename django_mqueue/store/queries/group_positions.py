"""Positions of groups in the partitions of a topic. Each statement reads a limited number of rows by index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..connection import session
from ..connection.dialect import NOW_MS, flat, marks, union
from ..offsets import REMOVING
from .skip_scan import NEWEST


@dataclass(frozen=True)
class Registered:
    start: int
    paused: bool
    changed: int
    resetting: bool


def registrations(
    using: str, topics: Sequence[str], groups: Sequence[str]
) -> dict[tuple[str, str], Registered]:
    """Return the registrations by (topic, group). Unregistered groups are missing from the result."""
    rows = session.fetch(
        using,
        "SELECT topic, consumer_group, offset_acked, paused, updated_at, scan_offset FROM queue_offsets"
        f" FORCE INDEX (queue_offsets_partition) WHERE consumer_group IN ({marks(groups)})"
        f" AND topic IN ({marks(topics)}) AND partition_key = ''",
        [*groups, *topics],
    )
    return {
        (topic, group): Registered(int(start), bool(paused), int(at), int(scanned) == REMOVING)
        for topic, group, start, paused, at, scanned in rows
    }


def alive(using: str, pairs: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str], int]:
    """Return the number of live subscribers of each (topic, group). A pair includes the maximum age of a heartbeat, in
    milliseconds.
    """
    branch = (
        "SELECT %s, COUNT(*) FROM queue_subscriber_heartbeats FORCE INDEX (queue_heartbeats_subscriber)"
        " WHERE consumer_group = %s AND topic = %s AND deregistered_at IS NULL"
        f" AND heartbeat_at > {NOW_MS} - %s"
    )
    params = flat([number, group, topic, ms] for number, (topic, group, ms) in enumerate(pairs))
    rows = session.fetch(using, union(branch, len(pairs)), params)
    return {pairs[int(number)][:2]: int(count) for number, count in rows}


def known_names(using: str, group: str, topic: str, limit: int) -> set[str]:
    """Return partitions that the group uses or has used: up to ``limit`` with a lease, and as many with a position."""
    one = (
        "SELECT partition_key FROM {} FORCE INDEX ({}) WHERE consumer_group = %s AND topic = %s"
        f" AND partition_key > '' ORDER BY partition_key LIMIT {limit:d}"
    )
    leased = one.format("queue_partition_leases", "queue_leases_partition")
    placed = one.format("queue_offsets", "queue_offsets_partition")
    rows = session.fetch(using, f"({leased}) UNION ({placed})", [group, topic, group, topic])
    return {str(name) for (name,) in rows}


def between(using: str, topic: str, gaps: Sequence[tuple[str, str | None]]) -> set[str]:
    """Return the first partition in the log, if any, between the names of each pair. None means no upper limit."""
    branches, params = [], []
    for after, before in gaps:
        bound = "" if before is None else " AND partition_key < %s"
        branches.append(
            "(SELECT partition_key FROM queue_messages FORCE INDEX (queue_messages_partition)"
            f" WHERE topic = %s AND partition_key > %s{bound} ORDER BY partition_key LIMIT 1)"
        )
        params += [topic, after] if before is None else [topic, after, before]
    return {str(name) for (name,) in session.fetch(using, " UNION ALL ".join(branches), params)}


@dataclass(frozen=True)
class Place:
    """A partition, with a group's position and lease.

    The group has acknowledged all up to ``acked``. All up to ``scanned`` was delivered; 0 if this is unknown.
    ``moved_at``: when the position was stored. ``newest``: the offset of the last message; 0 if there is none.
    """

    partition: str
    acked: int
    scanned: int
    moved_at: int | None
    newest: int
    owner: str
    holder: str
    renewed_at: int | None


_PLACE = (
    "p.partition_key, COALESCE(o.offset_acked, 0), GREATEST(COALESCE(o.scan_offset, 0), COALESCE(o.offset_acked, 0)),"
    f" o.updated_at, ({NEWEST})"
)


def leased(using: str, group: str, topic: str, limit: int) -> list[Place]:
    """Return the first ``limit`` partitions with a lease row.

    Each partition with open or undelivered messages has one, except new partitions that no worker has found yet.
    """
    rows = session.fetch(
        using,
        f"SELECT {_PLACE}, p.leased_by, p.holder, p.lease_renewed_at FROM queue_partition_leases p"
        " FORCE INDEX (queue_leases_partition) LEFT JOIN queue_offsets o FORCE INDEX (queue_offsets_partition)"
        " ON o.consumer_group = %s AND o.topic = %s AND o.partition_key = p.partition_key"
        f" WHERE p.consumer_group = %s AND p.topic = %s ORDER BY p.partition_key LIMIT {limit:d}",
        [topic, group, topic, group, topic],
    )
    return [_place(row) for row in rows]


def placed(using: str, group: str, topic: str, limit: int) -> list[Place]:
    """Return the first ``limit`` partitions with a position, for groups without workers."""
    rows = session.fetch(
        using,
        "SELECT p.partition_key, p.offset_acked, GREATEST(p.offset_acked, p.scan_offset), p.updated_at,"
        f" ({NEWEST}), '', '', NULL FROM queue_offsets p FORCE INDEX (queue_offsets_partition)"
        " WHERE p.consumer_group = %s AND p.topic = %s AND p.partition_key > ''"
        f" ORDER BY p.partition_key LIMIT {limit:d}",
        [topic, group, topic],
    )
    return [_place(row) for row in rows]


def named(using: str, group: str, topic: str, names: Sequence[str]) -> list[Place]:
    """Return these partitions, with the group's position and lease in each."""
    name = "SELECT CAST(%s AS CHAR(255)) COLLATE utf8mb4_bin AS partition_key"
    rows = session.fetch(
        using,
        f"SELECT {_PLACE}, COALESCE(l.leased_by, ''), COALESCE(l.holder, ''), l.lease_renewed_at"
        f" FROM ({' UNION ALL '.join([name] * len(names))}) p"
        " LEFT JOIN queue_offsets o FORCE INDEX (queue_offsets_partition)"
        " ON o.consumer_group = %s AND o.topic = %s AND o.partition_key = p.partition_key"
        " LEFT JOIN queue_partition_leases l FORCE INDEX (queue_leases_partition)"
        " ON l.consumer_group = %s AND l.topic = %s AND l.partition_key = p.partition_key",
        [topic, *names, group, topic, group, topic],
    )
    return [_place(row) for row in rows]


FEW = 7


def tails(using: str, topic: str, names: Sequence[str]) -> dict[str, int]:
    """Return for each partition the offset of the message before its last ``FEW`` ones. Shorter partitions are
    missing.
    """
    branch = (
        "SELECT partition_key, `offset` FROM queue_messages FORCE INDEX (queue_messages_partition)"
        f" WHERE topic = %s AND partition_key = %s ORDER BY `offset` DESC LIMIT 1 OFFSET {FEW}"
    )
    rows = session.fetch(using, union(branch, len(names)), flat([topic, name] for name in names))
    return {str(name): int(offset) for name, offset in rows}


def _place(row: session.Row) -> Place:
    name, acked, scanned, moved_at, newest, owner, holder, renewed_at = row
    return Place(
        str(name), int(acked), int(scanned), None if moved_at is None else int(moved_at), int(newest or 0),
        owner or "", holder or "", None if renewed_at is None else int(renewed_at),
    )  # fmt: skip


def holders(using: str, group: str, topic: str, limit: int) -> dict[str, int]:
    """Count the first ``limit`` leases by the holder's incarnation."""
    rows = session.fetch(
        using,
        "SELECT holder, COUNT(*) FROM (SELECT holder FROM queue_partition_leases FORCE INDEX (queue_leases_holder)"
        f" WHERE consumer_group = %s AND topic = %s ORDER BY holder LIMIT {limit:d}) x GROUP BY holder",
        [group, topic],
    )
    return {str(holder): int(count) for holder, count in rows}


@dataclass(frozen=True)
class Member:
    name: str
    incarnation: str
    heartbeat_at: int
    left_at: int | None


def members(using: str, group: str, topic: str, limit: int) -> list[Member]:
    """Return the first ``limit`` subscribers that have a heartbeat row, by name."""
    rows = session.fetch(
        using,
        "SELECT subscriber_name, incarnation, heartbeat_at, deregistered_at FROM queue_subscriber_heartbeats"
        " FORCE INDEX (queue_heartbeats_subscriber) WHERE consumer_group = %s AND topic = %s"
        f" ORDER BY subscriber_name LIMIT {limit:d}",
        [group, topic],
    )
    return [Member(name, life, int(at), None if left is None else int(left)) for name, life, at, left in rows]
