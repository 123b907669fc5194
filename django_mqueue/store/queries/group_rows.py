"""Rows of the log in ranges of offsets, each with its delivery state for a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.db.models import BigIntegerField
from django.db.models.expressions import RawSQL

from ...policy.batching import batches
from ...policy.message_query import DONE, IN_FLIGHT, OFFSET_MAX, PENDING, WAITING
from ..connection import session
from ..connection.dialect import NOW_MS, flat, placeholders

BRANCHES = 100
"""The maximum number of ranges in one statement."""
NOW = RawSQL(NOW_MS, (), output_field=BigIntegerField())
"""The database's time in epoch milliseconds, for annotations of querysets."""


def now_ms(using: str) -> int:
    return int(session.fetch(using, f"SELECT {NOW_MS}")[0][0])


class Range(NamedTuple):
    """Offsets of a topic from ``low`` to before ``high``. ``start``: the offset above which the group began.

    ``newest_first``: read the rows at the end of the range instead of its beginning.
    """

    topic: str
    group: str | None = None
    start: int = 0
    low: int = 0
    high: int = OFFSET_MAX
    newest_first: bool = False


class Row(NamedTuple):
    """A message. Times are epoch milliseconds.

    ``status``: None if it is for another group; '' if the range has no group. ``failed_group``: the group whose dead
    letter it is. ``delivered_at``: its last delivery to a subscriber. ``once``: no earlier attempt was counted.
    ``started``: a handler got it. ``skipped``: the handler's filter did not match.
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
    "(SELECT %s AS number, CAST(%s AS CHAR(128)) COLLATE utf8mb4_bin AS of_group, %s AS start, topic, `offset`,"
    " partition_key, consumer_group, published_at, failed_group FROM queue_messages FORCE INDEX (queue_messages_tail)"
    " WHERE topic = %s AND `offset` >= %s AND `offset` < %s ORDER BY `offset`{} LIMIT {})"
)
_OF_ALL = "SELECT m.number, m.`offset`, m.published_at, m.failed_group, '', NULL, NULL, 0, 0, 0 FROM ({}) m"
_OF_GROUP = (
    "SELECT m.number, m.`offset`, m.published_at, m.failed_group,"
    f" CASE WHEN m.consumer_group NOT IN ('', m.of_group) THEN NULL WHEN s.acked = 1 THEN '{DONE}'"
    f" WHEN s.in_flight = 1 THEN '{IN_FLIGHT}' WHEN s.acked = 0 THEN '{WAITING}'"
    f" WHEN m.`offset` <= GREATEST(m.start, COALESCE(o.offset_acked, 0)) THEN '{DONE}' ELSE '{PENDING}' END,"
    " CASE WHEN s.delivered_to <> '' THEN s.delivered_at END, s.acked_at, s.retry_count = 0, s.handed,"
    " s.acked = 1 AND s.handed = 0 AND s.failure_count = 0 AND s.delivered_to <> ''"
    " FROM ({}) m LEFT JOIN queue_delivery_state s FORCE INDEX (PRIMARY) ON s.consumer_group = m.of_group"
    " AND s.topic = m.topic AND s.partition_key = m.partition_key AND s.message_offset = m.`offset`"
    " LEFT JOIN queue_offsets o FORCE INDEX (queue_offsets_partition) ON o.consumer_group = m.of_group"
    " AND o.topic = m.topic AND o.partition_key = m.partition_key"
)


def rows(using: str, ranges: Sequence[Range], limit: int) -> list[list[Row]]:
    """Return the first or the newest ``limit`` rows of each range, in offset order.

    Either all ranges have a group, or none has.
    """
    found: list[list[Row]] = [[] for _ in ranges]
    for some in batches([*enumerate(ranges)], BRANCHES):
        union = " UNION ALL ".join(
            _IN_RANGE.format(" DESC" if one.newest_first else "", limit) for _, one in some
        )
        params = [[number, one.group or "", one.start, one.topic, one.low, one.high] for number, one in some]
        sql = (_OF_ALL if ranges[0].group is None else _OF_GROUP).format(union)
        for number, offset, at, failed, status, delivered, done, *flags in session.fetch(
            using, sql, flat(params)
        ):
            row = Row(int(offset), int(at), failed, status, delivered, done, *map(bool, flags))
            found[int(number)].append(row)
    return [sorted(one) for one in found]


def published(using: str, offsets: Sequence[int]) -> dict[int, int]:
    """Return the publication time of each message, by offset."""
    if not offsets:
        return {}
    found = session.fetch(
        using,
        "SELECT `offset`, published_at FROM queue_messages FORCE INDEX (PRIMARY)"
        f" WHERE `offset` IN ({placeholders(offsets)})",
        list(offsets),
    )
    return {int(offset): int(at) for offset, at in found}
