"""How many messages to claim ahead of free threads."""

from __future__ import annotations

WORTH = 0.05
"""Seconds of work to hold in hand: a claim takes a few milliseconds, which quick handlers would wait for."""
MOST = 100
WEIGHT = 0.1


class Prefetch:
    """Follows how long handlers take. Slow ones get nothing ahead: another worker may be free before they are."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._average: float | None = None

    def note(self, seconds: float) -> None:
        before = self._average
        self._average = seconds if before is None else before + WEIGHT * (seconds - before)

    def ahead(self) -> int:
        """Messages to claim beyond those that can start now; 0 until the first handler has ended."""
        if self._average is None or self._average >= WORTH:
            return 0
        return min(int(self.threads * WORTH / max(self._average, 1e-6)), MOST)
