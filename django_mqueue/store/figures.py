"""Counts of topics and groups: each reads an index range, up to a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import session
from .dialect import NOW_MS, flat, marks, union


@dataclass(frozen=True)
class Ends:
    """The first and the last message that a topic holds: offsets, and when they were published."""

    first: int
    first_at: int
    last: int
    last_at: int


def ends(using: str, topics: Sequence[str]) -> dict[str, Ends]:
    """Of those topics that hold any."""
    one = (
        "SELECT topic, `offset`, published_at FROM queue_messages FORCE INDEX (queue_messages_tail)"
        " WHERE topic = %s ORDER BY `offset`"
    )
    rows = session.fetch(
        using,
        union(f"{one} LIMIT 1) UNION ALL ({one} DESC LIMIT 1", len(topics)),
        flat([topic, topic] for topic in topics),
    )
    found: dict[str, list[tuple[int, int]]] = {}
    for topic, offset, at in rows:
        found.setdefault(topic, []).append((int(offset), int(at)))
    return {topic: Ends(*min(of), *max(of)) for topic, of in found.items()}


def targets(using: str, topics: Sequence[str], limit: int) -> dict[str, dict[str, int]]:
    """For each topic how many of its first ``limit`` rows are for which group ('': all)."""
    branch = (
        "SELECT topic, consumer_group, COUNT(*) FROM (SELECT topic, consumer_group FROM queue_messages"
        f" FORCE INDEX (queue_messages_tail) WHERE topic = %s ORDER BY `offset` LIMIT {limit:d}) x"
        " GROUP BY topic, consumer_group"
    )
    found: dict[str, dict[str, int]] = {}
    for topic, group, count in session.fetch(using, union(branch, len(topics)), topics):
        found.setdefault(topic, {})[group] = int(count)
    return found


def letters(using: str, pairs: Sequence[tuple[str, str]], limit: int) -> dict[tuple[str, str], int]:
    """For each dead-letter topic and group: how many letters, up to ``limit``."""
    branch = (
        "SELECT %s, COUNT(*) FROM (SELECT 1 FROM queue_messages FORCE INDEX (queue_messages_due)"
        f" WHERE topic = %s AND failed_group = %s LIMIT {limit:d}) x"
    )
    params = flat([number, *pair] for number, pair in enumerate(pairs))
    rows = session.fetch(using, union(branch, len(pairs)), params)
    return {pairs[int(number)]: int(count) for number, count in rows}


def members(using: str, topics: Sequence[str], groups: Sequence[str]) -> list[dict[str, Any]]:
    """All subscribers that are known of the groups on the topics."""
    columns = ("group", "topic", "name", "incarnation", "heartbeat_at", "left_at", "now")
    rows = session.fetch(
        using,
        f"SELECT consumer_group, topic, subscriber_name, incarnation, heartbeat_at, deregistered_at, {NOW_MS}"
        " FROM queue_subscriber_heartbeats FORCE INDEX (queue_heartbeats_subscriber)"
        f" WHERE consumer_group IN ({marks(groups)}) AND topic IN ({marks(topics)})"
        " ORDER BY consumer_group, topic, subscriber_name",
        [*groups, *topics],
    )
    return [dict(zip(columns, row, strict=True)) for row in rows]


def held(using: str, group: str, topic: str, limit: int) -> list[tuple[str, str, str, int]]:
    """(partition, name, incarnation, renewed at) of the first ``limit`` leases."""
    rows = session.fetch(
        using,
        "SELECT partition_key, leased_by, holder, lease_renewed_at FROM queue_partition_leases"
        " FORCE INDEX (queue_leases_partition) WHERE consumer_group = %s AND topic = %s"
        f" ORDER BY partition_key LIMIT {limit:d}",
        [group, topic],
    )
    return [(p, name, holder, int(at)) for p, name, holder, at in rows]


def opened(using: str, group: str, topic: str, leases: int, limit: int) -> list[tuple[bool, str, int]]:
    """(in flight, delivered to, delivered at) of the first ``limit`` messages that are in flight or wait for a retry,
    in the first ``leases`` partitions with a lease row, which all have where something is open."""
    rows = session.fetch(
        using,
        "SELECT s.in_flight, s.delivered_to, s.delivered_at FROM (SELECT partition_key FROM queue_partition_leases"
        " FORCE INDEX (queue_leases_partition) WHERE consumer_group = %s AND topic = %s"
        f" ORDER BY partition_key LIMIT {leases:d}) l"
        " STRAIGHT_JOIN queue_delivery_state s FORCE INDEX (queue_delivery_state_due)"
        " ON s.consumer_group = %s AND s.topic = %s AND s.partition_key = l.partition_key AND s.acked = 0"
        f" LIMIT {limit:d}",
        [group, topic, group, topic],
    )
    return [(bool(in_flight), name, int(at)) for in_flight, name, at in rows]
