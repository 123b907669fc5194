"""The subscribers of a group, with their leases and messages in flight."""

from __future__ import annotations

from ... import conf
from ...policy.durations import moment, moment_or_none
from ...store.connection import session
from ...store.queries import group_rows, group_summaries
from ..results import ALIVE, AT_LEAST, EXACT, LEFT, SILENT, Figure, SubscriberFigures
from .backlog import LEASES, OPEN, opened

MEMBERS = 1_000
"""The maximum number of subscribers that are returned."""


def subscribers(using: str, topic: str, group: str) -> list[SubscriberFigures]:
    """Return the members of a group by name, including members that left or are silent, if there is room."""
    with session.raises_not_migrated(using):
        now, lease_ms = group_rows.now_ms(using), conf.lease_ms(topic)
        members = group_summaries.members(using, group, topic, MEMBERS)
        leases = group_summaries.holders(using, group, topic, LEASES)
        rows = opened(using, topic, group)
    delivered_at: dict[str, list[int]] = {}
    for row in rows:
        if row["in_flight"]:
            delivered_at.setdefault(row["delivered_to"], []).append(int(row["delivered_at"]))
    found = []
    for one in sorted(members, key=lambda member: member.name):
        deliveries = delivered_at.get(one.name, [])
        alive = ALIVE if not one.is_dead and one.heartbeat_at > now - lease_ms else SILENT
        found.append(
            SubscriberFigures(
                topic, group, one.name, alive if one.left_at is None else LEFT, moment(one.heartbeat_at),
                moment_or_none(one.left_at), leases.get(one.incarnation, 0),
                Figure(len(deliveries), AT_LEAST if len(rows) == OPEN else EXACT),
                moment(min(deliveries)) if deliveries else None,
            )
        )  # fmt: skip
    return found
