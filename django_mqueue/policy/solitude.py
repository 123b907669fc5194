"""When a suspect may run alone: a message whose last delivery was left unanswered, perhaps because it kills workers.

If a process dies while several messages run in it, nobody knows which one was to blame. So suspects run one at
a time with nothing else in the process, and only a death then is counted against them.
"""

from __future__ import annotations

import math
from enum import Enum

QUIET_FOR = 10.0
PATIENCE = 10.0
ALONE_FOR = 10.0
ALONE_MAX = 3600.0


class Mode(Enum):
    CROWD = "claim as usual"
    WAIT = "claim nothing"
    ALONE = "claim one suspect and nothing else"
    BESIDE = "claim one suspect beside others; its death would not be its doing"


def alone_for(attempt: int) -> float:
    """Seconds that others wait for a suspect that runs alone; doubled with each attempt.

    A slow message is let run beside others then, and is no more to blame for what happens. One that kills its
    worker late is met alone at last, since each death adds an attempt.
    """
    return float(min(ALONE_FOR * 2 ** min(attempt - 1, 20), ALONE_MAX))


class Solitude:
    """Makes room for suspects in one process: stops claiming for a while, until nothing runs.

    If it does not fall quiet in time, work goes on and the next try waits longer. ``quiet_for=0`` never stops
    claiming: suspects come when nothing happens to be in flight or, after ``PATIENCE`` seconds, beside others.
    """

    def __init__(self, quiet_for: float = QUIET_FOR) -> None:
        self.quiet_for = self._window = quiet_for
        self._quiet_since: float | None = None
        self._again_at = -math.inf

    def mode(self, *, in_flight: int, alone: bool, suspects: bool, now: float) -> Mode:
        """What may be claimed now; ``alone``: one of what is in flight runs alone."""
        if alone:
            return Mode.WAIT
        if not suspects or not in_flight:
            self._window, self._quiet_since = self.quiet_for, None
            return Mode.ALONE if suspects else Mode.CROWD
        if now < self._again_at:
            return Mode.CROWD
        if self._quiet_since is None:
            self._quiet_since = now
        if not self.quiet_for:
            if now - self._quiet_since < PATIENCE:
                return Mode.CROWD
            self._quiet_since = now
            return Mode.BESIDE
        if now - self._quiet_since < self._window:
            return Mode.WAIT
        self._again_at, self._quiet_since = now + self._window, None
        self._window *= 2
        return Mode.CROWD
