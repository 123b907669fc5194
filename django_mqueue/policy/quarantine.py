"""Quarantine: messages whose last delivery was not settled run alone, because they may kill workers.

If a process dies while several messages run in it, the cause is unknown. So messages in quarantine run one at a time,
with nothing else in the process. Only a death during such a run counts against the message.
"""

from __future__ import annotations

import math
from enum import Enum

QUIET_FOR, QUIET_MAX = 10.0, 600.0
"""Seconds for which a process first claims nothing, to let a quarantined message run alone, and the maximum."""
RUN_TOGETHER_AFTER = 10.0
"""Seconds until a quarantined message runs with others, if claiming never stops."""
ALONE_FOR, ALONE_MAX = 10.0, 3600.0
"""Seconds for which a quarantined message runs alone at its first attempt, and the maximum."""


class Mode(Enum):
    NORMAL = "claim as usual"
    WAIT = "claim nothing"
    ALONE = "claim one quarantined message and nothing else"
    WITH_OTHERS = "claim one quarantined message with others; a crash does not count against it"


def alone_for(attempt: int) -> float:
    """Return the seconds that other messages wait for a message in quarantine. The time doubles with each attempt.

    After that time other messages run as well, and the message no longer counts as the cause of a death. Each death
    adds an attempt, so the time grows until even a message that kills its worker late does so alone.
    """
    return float(min(ALONE_FOR * 2 ** min(attempt - 1, 20), ALONE_MAX))


class Quarantine:
    """Makes room for messages in quarantine: the process claims nothing for a while, until no message runs.

    If messages still run after that time, the process claims as usual for as long. The next try waits twice as long,
    but at most ``QUIET_MAX`` seconds.
    ``quiet_for``: the seconds of the first try. With 0, claiming never stops: a message in quarantine runs when nothing
    is in flight or, after ``RUN_TOGETHER_AFTER`` seconds, together with others.
    """

    def __init__(self, quiet_for: float = QUIET_FOR) -> None:
        self.quiet_for = self._window = quiet_for
        self._quiet_since: float | None = None
        self._again_at = -math.inf

    def mode(self, *, in_flight: int, alone: bool, quarantined: bool, now: float) -> Mode:
        """Return which claims are allowed. ``alone``: a delivery in flight runs alone. ``now``: monotonic seconds."""
        if alone:
            return Mode.WAIT
        if not quarantined or not in_flight:
            self._window, self._quiet_since = self.quiet_for, None
            return Mode.ALONE if quarantined else Mode.NORMAL
        if now < self._again_at:
            return Mode.NORMAL
        if self._quiet_since is None:
            self._quiet_since = now
        if not self.quiet_for:
            if now - self._quiet_since < RUN_TOGETHER_AFTER:
                return Mode.NORMAL
            self._quiet_since = now
            return Mode.WITH_OTHERS
        if now - self._quiet_since < self._window:
            return Mode.WAIT
        self._again_at, self._quiet_since = now + self._window, None
        self._window = min(2 * self._window, QUIET_MAX)
        return Mode.NORMAL
