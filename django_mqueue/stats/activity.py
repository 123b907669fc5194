"""The current activity of a group's handlers, computed from a part of the group's messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta

from ..policy.message_query import DONE, IN_FLIGHT
from ..store.queries.group_rows import Row
from .results import percentiles


@dataclass(frozen=True)
class Activity:
    """The times for which messages run and wait. A time is None if it is unknown or if there is no such message.

    - ``running_for``: the time since the oldest delivery that a handler works on.
    - ``queued_for``: the time since the oldest delivery that waits for a handler.
    - ``usual``: the 95th percentile of the time from delivery to acknowledgement, for messages that are done.
    - ``quiet_for``: the time since a message was last delivered or done.
    """

    running_for: timedelta | None = None
    queued_for: timedelta | None = None
    usual: timedelta | None = None
    quiet_for: timedelta | None = None


def activity(rows: Iterable[Row], now: int, last: int) -> Activity:
    """Return the activity. All times are epoch milliseconds.

    ``rows`` may hold a message twice. ``last``: when the registration or a position last changed.
    """
    delivered = [(row.delivered_at, row) for row in rows if row.delivered_at is not None]
    took = [
        (max(row.done_at - at, 0), 1.0)
        for at, row in delivered
        if row.status == DONE and row.done_at is not None and not row.skipped
    ]
    in_flight = [(at, row.started) for at, row in delivered if row.status == IN_FLIGHT]
    moments = [last, *(at for at, _ in delivered), *(row.done_at or 0 for _, row in delivered)]
    usual = percentiles(took)
    return Activity(
        _since(now, [at for at, started in in_flight if started]),
        _since(now, [at for at, started in in_flight if not started]),
        None if usual is None else usual.p95,
        timedelta(milliseconds=max(now - max(moments), 0)),
    )


def _since(now: int, moments: Collection[int]) -> timedelta | None:
    return timedelta(milliseconds=max(now - min(moments), 0)) if moments else None
