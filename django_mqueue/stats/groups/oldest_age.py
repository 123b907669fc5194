"""Search for the oldest open message of a group in thousands of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...policy.batching import batches
from ...store import watermarks
from ...store.connection import session
from ...store.queries import message_pages
from ...store.queries.partition_walk import OFFSET_END, PARTITIONS

FIRST = 20
"""The number of partitions whose first open message is read before an upper bound is known."""
TOGETHER = 500


def oldest_open(using: str, topic: str, group: str, start: int, most: int) -> tuple[int | None, bool]:
    """Return the lowest offset that the group is not done with, and whether the search may be incomplete.

    The offset is None if nothing is open. The search reads at most ``most`` partitions. It may be incomplete if it has
    read that many.
    """
    after, looked = "", 0
    behind: list[tuple[int, str]] = []
    while looked < most and (
        names := message_pages.partitions(using, topic, after, min(PARTITIONS, most - looked))
    ):
        behind += [
            (one.acked, one.partition)
            for one in message_pages.news(using, group, topic, start, names)
            if one.newest > one.acked
        ]
        after, looked = names[-1], looked + len(names)
    found = _first(using, topic, group, sorted(behind))
    return (None if found == OFFSET_END else found), looked >= most


def _first(using: str, topic: str, group: str, behind: Sequence[tuple[int, str]]) -> int:
    """Return the lowest open offset of the partitions, or ``OFFSET_END``.

    ``behind``: (watermark, partition), lowest first.

    A watermark is just below its partition's first open message, or was a moment ago. So after a few partitions, most
    of the others cannot hold an older open message.
    """
    above = [(name, acked) for acked, name in behind]
    few = partial(watermarks.first_open, group=group, topic=topic, above=above[:FIRST], settled=OFFSET_END)
    found = min(session.single(using, few).values(), default=OFFSET_END) if above else OFFSET_END
    for some in batches(above[FIRST:], TOGETHER):
        lower = [(name, acked) for name, acked in some if acked < found - 1]
        if not lower:
            break
        if found == OFFSET_END:
            every = partial(watermarks.first_open, group=group, topic=topic, above=lower, settled=OFFSET_END)
            found = min(session.single(using, every).values(), default=OFFSET_END)
        else:
            found = min(found, message_pages.first_open_below(using, group, topic, lower, found) or found)
    return found
