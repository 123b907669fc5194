"""Fair turns: handlers get the free threads of a process by the time that each handler has used."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

TURN = 0.05
"""Seconds, for each thread, that a handler uses before the next handler's turn. Short turns cost more statements."""
UNKNOWN = 0.05
"""Seconds that a handler's first call is assumed to take."""
LEAST = 0.001
"""Minimum seconds that a call is charged: the worker's loop needs about as much for each call."""
WEIGHT = 0.1

Key = TypeVar("Key", bound=Hashable)


@dataclass
class Contender:
    """A handler with work. ``most``: calls that it may start now. ``claimed``: messages that it has claimed."""

    most: int
    claimed: int = 0


@dataclass
class _Account:
    used: float = 0.0
    average: float | None = None


class Turns(Generic[Key]):
    """Accounts of the time that handlers use. The handler that has used least comes first.

    A handler without work saves up one turn at most.
    """

    def __init__(self, threads: int) -> None:
        self._turn = TURN * threads
        self._accounts: dict[Key, _Account] = {}
        self._contending: set[Key] = set()
        self._level = 0.0

    def charge(self, key: Key, seconds: float) -> None:
        """Count time that the process has spent for a handler."""
        self._account(key).used += seconds

    def ended(self, key: Key, seconds: float) -> None:
        """Count a call of a handler that has ended."""
        account = self._account(key)
        account.used += max(seconds, LEAST)
        before = account.average
        account.average = seconds if before is None else before + WEIGHT * (seconds - before)

    def average(self, key: Key) -> float:
        """Return the seconds that a call takes, as far as known."""
        average = self._account(key).average
        return UNKNOWN if average is None else average

    def spent(self, key: Key, running: Mapping[Key, list[float]], claimed: int = 0) -> float:
        """Return what a handler will have used once its running and ``claimed`` calls have ended.

        ``running``: for how many seconds each call runs.
        """
        cost = self._cost(key)
        return self._account(key).used + sum(max(r, cost) for r in running.get(key, ())) + claimed * cost

    def turn_of(self, spent: float) -> int:
        """Return the number of the turn of a handler that has ``spent`` so many seconds."""
        return int(spent / self._turn)

    def calls_left(self, key: Key, spent: float) -> int:
        """Return how many calls are left in this turn; if little of it is left, in this and the next one."""
        left = (self.turn_of(spent) + 1) * self._turn - spent
        return int((left if left > self._turn / 2 else left + self._turn) / self._cost(key))

    def share(
        self, free: int, contenders: Mapping[Key, Contender], running: Mapping[Key, list[float]]
    ) -> dict[Key, int]:
        """Return how many calls each handler may start on the ``free`` threads.

        The earliest turn comes first. Within a turn, claimed messages come before messages that need a claim. Claimed
        messages go one handler after the other, because calls that alternate between two handlers need twice the
        statements. Among the other messages, the handler with the fewest running calls comes first.
        """
        used = {key: self._admitted(key, running) for key in contenders}
        self._contending = set(contenders)
        places = {key: place for place, key in enumerate(contenders)}
        shares: dict[Key, int] = {}

        def rank(key: Key, spent: float) -> tuple[tuple[int, bool, int, int, int], float, Key]:
            given, contender = shares.get(key, 0), contenders[key]
            claimed = given < contender.claimed
            calls = 0 if claimed else given + len(running.get(key, ()))
            return (self.turn_of(spent), not claimed, calls, contender.most, places[key]), spent, key

        heap = [rank(key, self.spent(key, running)) for key in contenders if contenders[key].most > 0]
        heapq.heapify(heap)
        for _ in range(free):
            if not heap:
                break
            _, spent, key = heapq.heappop(heap)
            self._level = max(self._level, used[key])
            shares[key] = shares.get(key, 0) + 1
            if shares[key] < contenders[key].most:
                heapq.heappush(heap, rank(key, spent + self._cost(key)))
        return shares

    def _admitted(self, key: Key, running: Mapping[Key, list[float]]) -> float:
        """Return the time that a handler has used, including running calls.

        A handler that had no work until now counts as at most one turn behind the handler that started last.
        """
        runs = sum(running.get(key, ()))
        if key not in self._contending:
            self.charge(key, max(self._level - self._turn - self._account(key).used - runs, 0))
        return self._account(key).used + runs

    def _cost(self, key: Key) -> float:
        return max(self.average(key), LEAST)

    def _account(self, key: Key) -> _Account:
        return self._accounts.setdefault(key, _Account())
