"""Registrations, leases and members of groups.

Each statement reads a limited number of rows by index. ``last_heartbeat`` reads the whole, short heartbeat table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...policy.batching import PER_STATEMENT
from ..connection import session
from ..connection.dialect import NOW_MS, placeholders
from ..connection.session import fetch_each
from ..offsets import Registration, parse_registration


def registrations(
    using: str, topics: Sequence[str], groups: Sequence[str]
) -> dict[tuple[str, str], Registration]:
    """Return the registrations by (topic, group). Unregistered groups are missing from the result."""
    rows = session.fetch(
        using,
        "SELECT topic, consumer_group, id, offset_acked, paused, updated_at, scan_offset FROM queue_offsets"
        f" FORCE INDEX (queue_offsets_partition) WHERE consumer_group IN ({placeholders(groups)})"
        f" AND topic IN ({placeholders(topics)}) AND partition_key = ''",
        [*groups, *topics],
    )
    return {(topic, group): parse_registration(row) for topic, group, *row in rows}


def registered(using: str, topics: Sequence[str]) -> list[tuple[str, str]]:
    """Return (topic, group) of all registrations for the topics."""
    rows = session.fetch(
        using,
        "SELECT topic, consumer_group FROM queue_offsets FORCE INDEX (queue_offsets_groups)"
        f" WHERE topic IN ({placeholders(topics)}) AND partition_key = '' AND consumer_group > ''",
        list(topics),
    )
    return [(str(topic), str(group)) for topic, group in rows]


def alive(using: str, pairs: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str], int]:
    """Count the live subscribers of each (topic, group, maximum age of a heartbeat in milliseconds)."""
    query = (
        "SELECT %s, COUNT(*) FROM queue_subscriber_heartbeats FORCE INDEX (queue_heartbeats_subscriber)"
        " WHERE consumer_group = %s AND topic = %s AND deregistered_at IS NULL"
        f" AND heartbeat_at > {NOW_MS} - %s"
    )
    found = fetch_each(using, query, [(group, topic, ms) for topic, group, ms in pairs], PER_STATEMENT)
    return {pair[:2]: int(count) for pair, ((count,),) in zip(pairs, found, strict=True)}


def settled(using: str, topics: Sequence[str]) -> dict[str, int]:
    """Return the stored settled offset of each topic that has one."""
    rows = session.fetch(
        using,
        "SELECT topic, offset_acked FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
        f" WHERE consumer_group = '' AND topic IN ({placeholders(topics)}) AND partition_key = ''",
        list(topics),
    )
    return {str(topic): int(offset) for topic, offset in rows}


def last_heartbeat(using: str, name: str) -> int | None:
    """Return the milliseconds since a subscriber's newest heartbeat; None if there is none, or it has left its groups.

    One loop sends the heartbeats of all groups: older ones may be of removed handlers.
    """
    ((age,),) = session.fetch(
        using,
        f"SELECT MIN({NOW_MS} - heartbeat_at) FROM queue_subscriber_heartbeats"
        " WHERE subscriber_name = %s AND deregistered_at IS NULL",
        [name],
    )
    return None if age is None else int(age)


def holders(using: str, group: str, topic: str, limit: int) -> dict[str, int]:
    """Count held leases by the holder's incarnation, at most ``limit`` leases in all."""
    rows = session.fetch(
        using,
        "SELECT holder, COUNT(*) FROM (SELECT holder FROM queue_partition_leases FORCE INDEX (queue_leases_holder)"
        f" WHERE consumer_group = %s AND topic = %s AND holder > '' ORDER BY holder LIMIT {limit:d}) x GROUP BY holder",
        [group, topic],
    )
    return {str(holder): int(count) for holder, count in rows}


@dataclass(frozen=True)
class Member:
    """A heartbeat row. ``left_at``: when it left. ``is_dead``: other workers marked it dead (``protocol.takeover``)."""

    name: str
    incarnation: str
    heartbeat_at: int
    left_at: int | None
    is_dead: bool


def members(using: str, group: str, topic: str, limit: int) -> list[Member]:
    """Return up to ``limit`` subscribers that have a heartbeat row: first those that may be alive, then by name.

    It reads and sorts all heartbeat rows of the group.
    """
    rows = session.fetch(
        using,
        "SELECT subscriber_name, incarnation, heartbeat_at, IF(session_lock = '', deregistered_at, NULL),"
        " session_lock <> '' AND deregistered_at IS NOT NULL FROM queue_subscriber_heartbeats"
        " FORCE INDEX (queue_heartbeats_subscriber) WHERE consumer_group = %s AND topic = %s"
        f" ORDER BY deregistered_at IS NOT NULL, subscriber_name LIMIT {limit:d}",
        [group, topic],
    )
    return [
        Member(name, incarnation, int(at), None if left is None else int(left), bool(is_dead))
        for name, incarnation, at, left, is_dead in rows
    ]
