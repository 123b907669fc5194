"""Fair turns: handlers that have used less time get the free threads of a process first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

TURN = 0.05
"""Length of a turn: seconds of work on each thread. Shorter turns need more statements."""
UNKNOWN = 0.05
"""Seconds that a handler's first call is assumed to take."""
LEAST = 0.001
"""Minimum charge for a call, in seconds. The worker's loop needs about this time for each call."""
WEIGHT = 0.1

Key = TypeVar("Key", bound=Hashable)


@dataclass
class Contender:
    """A handler with work. ``most``: calls that it may start now. ``claimed``: messages that it has claimed."""

    most: int
    claimed: int = 0


class Turns(Generic[Key]):
    """Counts the time that handlers use, and chooses the next one. A handler without work saves up at most one turn.

    ``running``, in the methods: for each handler, the seconds since each of its running calls has started.
    """

    def __init__(self, threads: int) -> None:
        self._turn = TURN * threads
        self._used: defaultdict[Key, float] = defaultdict(float)
        self._average: dict[Key, float] = {}
        self._contending: set[Key] = set()
        self._level = 0.0

    def charge(self, key: Key, seconds: float) -> None:
        """Count time that the process has spent for a handler."""
        self._used[key] += seconds

    def ended(self, key: Key, seconds: float) -> None:
        """Count a call of a handler that has ended."""
        self.charge(key, max(seconds, LEAST))
        before = self._average.get(key, seconds)
        self._average[key] = before + WEIGHT * (seconds - before)

    def average(self, key: Key) -> float:
        """Return the moving average of a call's seconds; ``UNKNOWN`` before the first call has ended."""
        return self._average.get(key, UNKNOWN)

    def spent(self, key: Key, running: Mapping[Key, list[float]], claimed: int = 0) -> float:
        """Return the seconds that a handler will have used when its running and ``claimed`` calls have ended."""
        cost = self._cost(key)
        return self._used[key] + sum(max(r, cost) for r in running.get(key, ())) + claimed * cost

    def turn_of(self, spent: float) -> int:
        """Return the number of a handler's current turn, after it has ``spent`` these seconds."""
        return int(spent / self._turn)

    def calls_left(self, key: Key, spent: float) -> int:
        """Return how many calls fit into the rest of this turn. If half or less is left, the next turn is added."""
        left = (self.turn_of(spent) + 1) * self._turn - spent
        return int((left if left > self._turn / 2 else left + self._turn) / self._cost(key))

    def share(
        self, free: int, contenders: Mapping[Key, Contender], running: Mapping[Key, list[float]]
    ) -> dict[Key, int]:
        """Return how many calls each handler may start on the ``free`` threads.

        The handler with the earliest turn comes first. Within a turn, claimed messages start before messages that need
        a claim. A handler starts all its claimed messages before the next handler starts any, because alternating calls
        need twice the statements. Among the other messages, the handler with the fewest running calls comes first.
        """
        used = {key: self._admitted(key, running) for key in contenders}
        self._contending = set(contenders)
        places = {key: place for place, key in enumerate(contenders)}
        spent = {key: self.spent(key, running) for key in contenders}
        shares: Counter[Key] = Counter()

        def rank(key: Key) -> tuple[int, bool, int, int, int]:
            contender = contenders[key]
            needs_claim = shares[key] >= contender.claimed
            calls = shares[key] + len(running.get(key, ())) if needs_claim else 0
            return self.turn_of(spent[key]), needs_claim, calls, contender.most, places[key]

        for _ in range(free):
            able = [key for key in contenders if shares[key] < contenders[key].most]
            if not able:
                break
            first = min(able, key=rank)
            self._level = max(self._level, used[first])
            shares[first] += 1
            spent[first] += self._cost(first)
        return dict(shares)

    def _admitted(self, key: Key, running: Mapping[Key, list[float]]) -> float:
        """Return the seconds that a handler has used. With new work it is first charged up to one turn behind."""
        runs = sum(running.get(key, ()))
        if key not in self._contending:
            self.charge(key, max(self._level - self._turn - self._used[key] - runs, 0))
        return self._used[key] + runs

    def _cost(self, key: Key) -> float:
        return max(self.average(key), LEAST)
