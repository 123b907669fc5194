"""Due times: the arguments ``delay=`` and ``at=`` of publish."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from .durations import moment_ms, to_ms


@dataclass(frozen=True)
class Due:
    """A due time by the database's clock: ``ms`` from now if ``from_now``, else since the epoch."""

    ms: int
    from_now: bool


def due_of(delay: float | timedelta | None, at: datetime | None, *, zero: bool = False) -> Due | None:
    """Return the due time of a message; None if it is due now.

    ``zero``: return a due time also for a delay of 0. ``at`` may be in the past, because only the database's clock
    decides that. Raises ``TypeError`` or ``ValueError`` that names the argument.
    """
    if delay is not None and at is not None:
        raise ValueError("delay and at exclude each other: give only one of them")
    if delay is not None:
        ms = to_ms("delay", delay)
        return Due(ms, from_now=True) if ms or zero else None
    if at is None:
        return None
    if not isinstance(at, datetime):
        raise TypeError(f"at must be an aware datetime, not {type(at).__name__}")
    return Due(moment_ms("at", at), from_now=False)
