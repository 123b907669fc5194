"""Times that users give: durations, datetimes and due times, in whole milliseconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

DURATION_MAX_MS = 100 * 366 * 86_400_000
"""A hundred years. A longer duration is probably in the wrong unit."""


def to_ms(argument: str, value: Any, *, least: float = 0) -> int:
    """Return the milliseconds of a ``timedelta`` or a number of seconds.

    ``least``: the minimum, in seconds. Raises ``TypeError`` or ``ValueError`` that names ``argument`` and the limit.
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
    else:
        raise TypeError(f"{argument} must be a timedelta or a number of seconds, not {type(value).__name__}")
    if not seconds >= least:  # Also NaN.
        raise ValueError(f"{argument} must be at least {least} seconds, not {value!r}")
    if seconds * 1000 > DURATION_MAX_MS:
        raise ValueError(f"{argument} must be at most a hundred years, not {value!r}")
    return round(seconds * 1000)


def moment_ms(argument: str, value: Any) -> int:
    """Return the epoch milliseconds of an aware datetime.

    Raises ``TypeError`` for other values, and ``ValueError`` for a naive datetime or outside the years 1 to 9999 in
    UTC.
    """
    if not isinstance(value, datetime):
        raise TypeError(f"{argument} must be an aware datetime, not {value!r}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise ValueError(f"{argument} must be an aware datetime, not the naive {value!r}")
    try:
        since_epoch = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    except OverflowError as error:
        raise ValueError(f"{argument} must lie within the years 1 to 9999 in UTC, not {value!r}") from error
    return since_epoch // timedelta(milliseconds=1)


def moment(epoch_ms: int) -> datetime:
    """Return the aware UTC datetime of epoch milliseconds."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=epoch_ms)


def moment_or_none(epoch_ms: int | None) -> datetime | None:
    return None if epoch_ms is None else moment(epoch_ms)


@dataclass(frozen=True)
class Due:
    """A due time by the database's clock: ``ms`` from now if ``from_now``, else since the epoch."""

    ms: int
    from_now: bool


def due_of(delay: float | timedelta | None, at: datetime | None, *, zero: bool = False) -> Due | None:
    """Return the due time of a message; None if it is due now.

    ``zero``: return a due time also for a delay of 0. ``at`` may be in the past: only the database's clock
    can tell. Raises ``TypeError`` or ``ValueError`` that names the argument.
    """
    if delay is not None and at is not None:
        raise ValueError("delay and at exclude each other: give only one of them")
    if delay is not None:
        ms = to_ms("delay", delay)
        return Due(ms, from_now=True) if ms or zero else None
    return None if at is None else Due(moment_ms("at", at), from_now=False)
