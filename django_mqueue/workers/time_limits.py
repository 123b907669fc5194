"""Time limits of handlers. A handler past its ``max_runtime`` has failed; a handler that seems to hang is logged."""

from __future__ import annotations

import logging
import math
import time

from ..exceptions import TimeLimitExceeded
from .jobs import Job, Outcome
from .outcomes import describe, verdicts_on
from .pool import HandlerPool

logger = logging.getLogger("django_mqueue")

CANCEL_GRACE = 2.0
"""Seconds that an ``async`` handler has to end after it was cancelled."""
LOG_AFTER_TIMEOUTS = 10
"""A handler without a limit is logged after this many visibility timeouts, and again when its time has doubled."""


class Limits:
    """Checks the running handlers in each turn of a worker's loop. It makes no query and calls no code of the user."""

    def __init__(self, crew: HandlerPool) -> None:
        self.crew = crew
        self._tell_at: dict[Job, float] = {}

    def look(self) -> None:
        """Give up handlers that have run too long, and log handlers that seem to hang."""
        now = time.monotonic()
        for job in self._running():
            ran = now - job.started
            if ran >= _limit(job):
                self._give_up(job, ran)
            elif job.handler.max_runtime is None and ran >= self._tell_at.get(job, _long(job)):
                self._tell_at[job] = 2 * ran
                logger.warning("%s: has been running for %.1f s; its stack now:\n%s", job, ran, job.stack())
        self._tell_at = {job: at for job, at in self._tell_at.items() if job in self.crew.jobs}

    def next_in(self) -> float:
        """Return the seconds until the next limit is reached."""
        now = time.monotonic()
        ends = [job.started + _limit(job) for job in self._running()]
        return max(min(ends, default=math.inf) - now, 0)

    def _running(self) -> list[Job]:
        return [job for job in self.crew.jobs if job.started < math.inf and not job.ended]

    def _give_up(self, job: Job, ran: float) -> None:
        stack = job.stack()
        logger.warning(
            "%s: has been running for %.1f s, and is given up (max_runtime is %g s); its stack now:\n%s",
            job, ran, job.handler.max_runtime, stack,
        )  # fmt: skip
        self.crew.give_up(job, lambda: _overdue(job, stack))


def _limit(job: Job) -> float:
    limit = job.handler.max_runtime
    return math.inf if limit is None else limit + (CANCEL_GRACE if job.cancels else 0)


def _long(job: Job) -> float:
    return LOG_AFTER_TIMEOUTS * job.handler.visible_ms / 1000


def _overdue(job: Job, stack: str) -> list[Outcome]:
    """Return a failed outcome for each message that the handler was given. This calls the user's retry policy."""
    error = TimeLimitExceeded(job.handler.max_runtime or 0)
    judged = dict(job.judged)
    given = [delivery for delivery in job.deliveries if delivery not in judged]
    judged |= verdicts_on(job.handler, given, error, f"{describe(error)}\nIts stack then:\n{stack}")
    return [Outcome(delivery, judged[delivery], overdue=delivery in given) for delivery in job.deliveries]
