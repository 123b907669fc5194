"""Fair turns: handlers that have used less time get the free threads of a process first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

LOT_SECONDS = 0.05
"""Seconds of work that a thread gets at once. Each lot needs statements, whatever its size."""
LOT_MAX = 100
"""Maximum number of calls that a thread gets at once. After a crash, each of them runs alone."""
UNKNOWN = 0.05
"""Seconds that a handler's first call is assumed to take."""
LEAST = 0.0001
"""Minimum charge for a call, in seconds. The worker's loop needs about this time for each call."""
SMOOTHING = 0.1
"""The share of the newest call in the moving average."""

Key = TypeVar("Key", bound=Hashable)


@dataclass
class Contender:
    """A handler with work. ``lot_count``: how many lots it may start now. ``calls``: the number of calls in a lot."""

    lot_count: int
    calls: int = 1


class Turns(Generic[Key]):
    """Counts the time that handlers use, and chooses the next one. A handler without work saves up at most one turn.

    ``weights``: a handler of weight 3 gets three times the time of one of weight 1, the default. ``running``, in the
    methods: the seconds that each handler's running lots will have taken when they end.
    """

    def __init__(self, threads: int, weights: Mapping[Key, int] | None = None) -> None:
        self._weights = weights or {}
        self._turn = LOT_SECONDS * threads
        self._used: defaultdict[Key, float] = defaultdict(float)
        self._average: dict[Key, float] = {}
        self._contending: set[Key] = set()
        self._level = 0.0

    def charge(self, key: Key, seconds: float) -> None:
        """Count time that the process has spent for a handler."""
        self._used[key] += self._weighted(key, seconds)

    def ended(self, key: Key, seconds: float) -> None:
        """Count a call of a handler that has ended."""
        self.charge(key, max(seconds, LEAST))
        before = self._average.get(key, seconds)
        self._average[key] = before + SMOOTHING * (seconds - before)

    def average(self, key: Key) -> float:
        """Return the moving average of a call's seconds; ``UNKNOWN`` before the first call has ended."""
        return max(self._average.get(key, UNKNOWN), LEAST)

    def lot_size(self, key: Key) -> int:
        """Return the number of calls that a thread gets at once: about ``LOT_SECONDS`` of work."""
        return min(max(int(LOT_SECONDS / self.average(key)), 1), LOT_MAX)

    def spent(self, key: Key, running: Mapping[Key, float]) -> float:
        """Return the seconds, by weight, that a handler will have used when its running lots have ended."""
        return self._used[key] + self._weighted(key, running.get(key, 0.0))

    def _weighted(self, key: Key, seconds: float) -> float:
        return seconds / self._weights.get(key, 1)

    def share(
        self, free: int, contenders: Mapping[Key, Contender], running: Mapping[Key, float]
    ) -> dict[Key, int]:
        """Return how many lots each handler starts on the ``free`` threads, the one with the least time first."""
        spent = {key: self._admitted(key, running) for key in contenders}
        self._contending = set(contenders)
        shares: Counter[Key] = Counter()
        for _ in range(free):
            able = [key for key in contenders if shares[key] < contenders[key].lot_count]
            if not able:
                break
            first = min(able, key=spent.__getitem__)
            self._level = max(self._level, spent[first])
            shares[first] += 1
            spent[first] += self._weighted(first, contenders[first].calls * self.average(first))
        return dict(shares)

    def _admitted(self, key: Key, running: Mapping[Key, float]) -> float:
        """Return a handler's time. If its work is new, first raise the time to one turn below the others'."""
        if key not in self._contending:
            self._used[key] += max(self._level - self._turn - self.spent(key, running), 0)
        return self.spent(key, running)
