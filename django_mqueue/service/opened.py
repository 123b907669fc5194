"""What a group has been given and is not done with: one question for all who ask it, so that a page asks it once."""

from __future__ import annotations

from typing import Any

from ..store import places

LEASES, OPEN = 20_000, 5_000
"""Partitions and messages that are looked at."""


def opened(using: str, topic: str, group: str) -> list[dict[str, Any]]:
    """The first ``OPEN`` messages, by ``places.OPEN_COLUMNS``."""
    return places.opened(using, group, topic, LEASES, OPEN)


def in_hand(using: str, topic: str, group: str, subscriber: str | None, limit: int) -> list[dict[str, Any]]:
    """Up to ``limit`` of those in flight, or of those that one subscriber was given."""
    if subscriber is None:
        rows = opened(using, topic, group)
        found = [row for row in rows if row["in_flight"]]
        if len(rows) < OPEN or len(found) >= limit:
            return found[:limit]
    return places.in_hand(using, group, topic, subscriber, LEASES, limit)
