"""The state of the group that a subscriber reads at each discovery, in one statement."""

from __future__ import annotations

from dataclasses import dataclass

from ..connection import session, session_lock
from ..connection.dialect import NOW_MS
from ..heartbeats import Member
from ..leases import COUNTS
from ..offsets import Registration, parse_registration

DISCOVERY = (
    "SELECT 'offsets', consumer_group, '', id, offset_acked, paused, updated_at, scan_offset"
    " FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
    " WHERE consumer_group IN ('', %s) AND topic = %s AND partition_key = ''"
    f" UNION ALL SELECT 'member', subscriber_name, incarnation, {NOW_MS} - heartbeat_at,"
    f" {{lock_is_free}}, RIGHT(session_lock, 1) = '{session_lock.LEAVING}', 0, 0 FROM queue_subscriber_heartbeats"
    f" WHERE consumer_group = %s AND topic = %s AND deregistered_at IS NULL AND heartbeat_at > {NOW_MS} - %s"
    f" UNION ALL SELECT 'leases', '', '', {COUNTS}, {NOW_MS}, 0, 0"
)
"""Finds the registration and the topic's row by ``queue_offsets_partition``, the members by
``queue_heartbeats_subscriber``, which the server chooses, and the leases by the indexes that ``COUNTS`` names."""


@dataclass(frozen=True)
class Discovery:
    """The result of a discovery.

    ``members``: the live subscribers of the group, by name. ``leased``: the number of leases, of which ``free`` are
    free or expired. ``now_ms``: the database's time in epoch milliseconds.
    """

    registration: Registration | None
    settled: int
    members: list[Member]
    leased: int
    free: int
    now_ms: int


def read(using: str, group: str, topic: str, lease_ms: int) -> Discovery:
    """Read the registration, the settled offset, the members and the number of leases of a group. Takes no lock."""
    rows = session.fetch(
        using,
        DISCOVERY.format(lock_is_free=session_lock.is_free(using)),
        [group, topic, group, topic, lease_ms, *[group, topic] * 3, lease_ms],
    )
    found = {name: numbers for kind, name, _, *numbers in rows if kind == "offsets"}
    members = [
        Member(name, incarnation, int(since_heartbeat_ms), bool(is_free), bool(is_leaving))
        for kind, name, incarnation, since_heartbeat_ms, is_free, is_leaving, *_ in rows
        if kind == "member"
    ]
    ((leased, free, now_ms),) = (row[3:6] for row in rows if row[0] == "leases")
    return Discovery(
        parse_registration(found[group]) if group in found else None,
        int(found[""][1]) if "" in found else 0,
        sorted(members, key=lambda member: member.name),
        int(leased), int(free), int(now_ms),
    )  # fmt: skip
