"""Open messages of a group: in flight, or waiting for a retry.

All callers use the same query, so that a page runs it only once.
"""

from __future__ import annotations

from typing import Any

from ...store.queries import partition_progress

LEASES, OPEN = 20_000, 5_000
"""The maximum number of leases, and of open messages, that are read."""


def opened(using: str, topic: str, group: str) -> list[dict[str, Any]]:
    """Return the first ``OPEN`` open messages, as mappings by ``places.OPEN_COLUMNS``."""
    return partition_progress.opened(using, group, topic, LEASES, OPEN)


def in_hand(using: str, topic: str, group: str, subscriber: str | None, limit: int) -> list[dict[str, Any]]:
    """Return up to ``limit`` messages in flight: of the whole group, or of one subscriber."""
    if subscriber is None:
        rows = opened(using, topic, group)
        found = [row for row in rows if row["in_flight"]]
        if len(rows) < OPEN or len(found) >= limit:
            return found[:limit]
    return partition_progress.in_hand(using, group, topic, subscriber, LEASES, limit)
