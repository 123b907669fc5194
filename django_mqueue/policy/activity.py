"""What a group's handlers do at this moment, seen from some of its messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from .sampling import DONE, IN_FLIGHT, Sampled, percentiles


@dataclass(frozen=True)
class Activity:
    """``running_for``: how long the handler that has run longest has its message; ``queued_for``: how long the delivery
    waits for a handler that has waited longest; None where there is none.

    ``usual``: 95 of 100 messages that were done lately took no longer from delivery to answer; None where none was.
    ``quiet_for``: how long ago anything was delivered or done.
    """

    running_for: timedelta | None = None
    queued_for: timedelta | None = None
    usual: timedelta | None = None
    quiet_for: timedelta | None = None


def activity(rows: Iterable[Sampled], now: int, last: int) -> Activity:
    """``rows`` may tell of a message twice. ``last``: something has happened then, or what did before is not known. All
    times are epoch milliseconds."""
    seen = [row for row in rows if row.delivered_at is not None]
    flying = [row for row in seen if row.status == IN_FLIGHT]
    took = [
        max(row.done_at - (row.delivered_at or 0), 0)
        for row in seen
        if row.status == DONE and row.done_at is not None and not row.skipped
    ]
    moments = [last, *(row.delivered_at or 0 for row in seen), *(row.done_at or 0 for row in seen)]
    usual = percentiles([(ms, 1.0) for ms in took])
    return Activity(
        _since(now, [row.delivered_at or 0 for row in flying if row.started]),
        _since(now, [row.delivered_at or 0 for row in flying if not row.started]),
        None if usual is None else usual.p95,
        timedelta(milliseconds=max(now - max(moments), 0)),
    )


def _since(now: int, moments: list[int]) -> timedelta | None:
    return timedelta(milliseconds=max(now - min(moments), 0)) if moments else None
