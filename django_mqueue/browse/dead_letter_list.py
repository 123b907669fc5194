"""Facts for lists of dead letters: the total, the beginnings of payloads, and the neighbours of a dead letter."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from ..policy.dead_letter_filter import DeadLetterQuery
from ..policy.message_query import DEAD
from ..results import Inspected
from ..service import message_views
from ..store.connection import session
from .dead_letters import COUNT_MOST, OFFSET_MAX, Count, bounded_walk, count, page

TOTAL_SECONDS = 0.05
"""Time limit for an exact total, in seconds."""
GROWTH = 4


def total(using: str, query: DeadLetterQuery) -> Count:
    """Count the selected dead letters exactly, if that takes less than about ``TOTAL_SECONDS``.

    If an index counts them, each group is counted up to a maximum, which grows while the counts are fast enough.
    """
    begun, most = time.monotonic(), COUNT_MOST
    found = count(using, query, OFFSET_MAX - 1, seconds=TOTAL_SECONDS, most=most)
    while (
        found.is_more and query.is_group_or_all and (time.monotonic() - begun) * (1 + GROWTH) < TOTAL_SECONDS
    ):
        most *= GROWTH
        found = count(using, query, OFFSET_MAX - 1, most=most)
    return found


def neighbours(using: str, query: DeadLetterQuery, offset: int) -> tuple[int | None, int | None]:
    """Return the offsets of the previous and the next selected dead letter of the list, which begins with the newest.

    None: there is none, or the search ended at its limits.
    """
    chunk = 2 if query.is_all else None
    previous = None
    with session.raises_not_migrated(using):
        for step in bounded_walk(using, query, (offset, OFFSET_MAX), newest_first=False, chunk=chunk):
            if step.found:
                previous = step.found[0].offset
                break
    following = page(using, query, offset, limit=1).summaries
    return previous, following[0].offset if following else None


def beginnings(using: str, topic: str, offsets: Sequence[int], payload_limit: int) -> dict[int, Inspected]:
    """Return the dead letters at these offsets as messages of ``topic``, with up to ``payload_limit`` bytes each."""
    with session.raises_not_migrated(using):
        found = message_views.read(using, offsets, payload_limit)
    return {
        offset: replace(message_views.decode(row, body, topic=topic, location=DEAD), offset=offset)
        for offset, (row, body) in found.items()
    }
