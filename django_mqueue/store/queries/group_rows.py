"""Rows of the log in ranges of offsets, each with its delivery state for a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...policy.batching import batches
from ...policy.message_query import DONE, IN_FLIGHT, PENDING, WAITING
from ..connection import session
from ..connection.dialect import NOW_MS, flat, marks
from .partition_walk import OFFSET_END

BRANCHES = 64
"""The maximum number of ranges in one statement."""


def now_ms(using: str) -> int:
    return int(session.fetch(using, f"SELECT {NOW_MS}")[0][0])


class Range(NamedTuple):
    """Offsets of a topic from ``low`` to before ``high``. ``start``: the offset above which the group began.

    ``newest_first``: the rows at the end of the range are read, not those at its beginning.
    """

    topic: str
    group: str | None = None
    start: int = 0
    low: int = 0
    high: int = OFFSET_END
    newest_first: bool = False


class Row(NamedTuple):
    """A message. Times are epoch milliseconds.

    ``status``: None if it is for another group; '' without a group. ``failed_group``: the group whose dead letter it
    is. ``delivered_at``: its last delivery to a subscriber. ``once``: it was delivered once. ``started``: a handler got
    it. ``skipped``: the handler's filter did not match.
    """

    offset: int
    published_at: int
    failed_group: str | None
    status: str | None
    delivered_at: int | None
    done_at: int | None
    once: bool
    started: bool
    skipped: bool


_IN_RANGE = (
    "SELECT topic, `offset`, partition_key, consumer_group, published_at, failed_group FROM queue_messages"
    " FORCE INDEX (queue_messages_tail) WHERE topic = %s AND `offset` >= %s AND `offset` < %s ORDER BY `offset`"
)
_STATUS = (
    f"CASE WHEN m.consumer_group NOT IN ('', %s) THEN NULL WHEN s.acked = 1 THEN '{DONE}'"
    f" WHEN s.in_flight = 1 THEN '{IN_FLIGHT}' WHEN s.acked = 0 THEN '{WAITING}'"
    f" WHEN m.`offset` <= GREATEST(%s, COALESCE(o.offset_acked, 0)) THEN '{DONE}' ELSE '{PENDING}' END"
)
_OF_GROUP = (
    f"SELECT %s, m.`offset`, m.published_at, m.failed_group, {_STATUS},"
    " CASE WHEN s.delivered_to <> '' THEN s.delivered_at END, s.acked_at, s.retry_count = 0, s.handed,"
    " s.acked = 1 AND s.handed = 0 AND s.failure_count = 0 AND s.delivered_to <> ''"
    " FROM ({}) m LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = %s"
    " AND s.topic = m.topic AND s.partition_key = m.partition_key AND s.message_offset = m.`offset`"
    " LEFT JOIN queue_offsets o FORCE INDEX (queue_offsets_partition) ON o.consumer_group = %s"
    " AND o.topic = m.topic AND o.partition_key = m.partition_key"
)
_OF_ALL = "SELECT %s, m.`offset`, m.published_at, m.failed_group, '', NULL, NULL, 0, 0, 0 FROM ({}) m"


def rows(using: str, ranges: Sequence[Range], limit: int) -> list[list[Row]]:
    """Return the first or the newest ``limit`` rows of each range, in offset order."""
    found: list[list[Row]] = [[] for _ in ranges]
    for some in batches([*enumerate(ranges)], BRANCHES):
        branches = [_branch(one, limit) for _, one in some]
        params = flat(_params(number, one) for number, one in some)
        for number, offset, at, failed, status, delivered, done, *flags in session.fetch(
            using, " UNION ALL ".join(branches), params
        ):
            found[number].append(
                Row(int(offset), int(at), failed, status, delivered, done, *map(bool, flags))
            )
    return [sorted(one) for one in found]


def _branch(of: Range, limit: int) -> str:
    inner = f"{_IN_RANGE}{' DESC' if of.newest_first else ''} LIMIT {limit:d}"
    return f"({(_OF_ALL if of.group is None else _OF_GROUP).format(inner)})"


def _params(number: int, of: Range) -> list[object]:
    bounds = [of.topic, of.low, of.high]
    if of.group is None:
        return [number, *bounds]
    return [number, of.group, of.start, *bounds, of.group, of.group]


def published(using: str, offsets: Sequence[int]) -> dict[int, int]:
    """Return the publication time of each message, by offset."""
    if not offsets:
        return {}
    found = session.fetch(
        using,
        "SELECT `offset`, published_at FROM queue_messages FORCE INDEX (PRIMARY)"
        f" WHERE `offset` IN ({marks(offsets)})",
        list(offsets),
    )
    return {int(offset): int(at) for offset, at in found}
