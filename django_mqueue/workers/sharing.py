"""Share a worker's threads among its handlers: starts, claims, and claims ahead, before a thread is free."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from ..protocol.claiming import UNLIMITED
from ..protocol.delivery import Delivery
from ..protocol.subscriber import Subscriber
from .completer import LOCKED_FOR
from .jobs import Job
from .pool import HandlerPool
from .registry import Handler
from .turns import Contender, Turns

AHEAD_SECONDS = 0.05
"""Seconds of work to claim ahead. Otherwise quick handlers would wait for a claim, which takes a few milliseconds."""
AHEAD_MAX = 100
"""Maximum number of messages that a process claims ahead."""
REST = 0.02
"""Seconds for which no thread is kept free for a handler whose claim got nothing."""


class Sharing:
    """Shares the threads of ``pool`` by the time that handlers use. ``engines``: the subscribers that may claim.

    A message that was claimed ahead starts without a further claim. A handler without such messages has slow calls,
    takes batches, or has just got work. In its turn a thread stays free for it, until its claim.
    """

    def __init__(
        self, engines: Sequence[Subscriber], handlers: Mapping[Subscriber, Handler], pool: HandlerPool
    ) -> None:
        self.engines, self.handlers, self.pool = engines, handlers, pool
        self.ahead: dict[Subscriber, deque[Delivery]] = {engine: deque() for engine in engines}
        self._engine_of = {engine.acknowledger: engine for engine in engines}
        self._turns: Turns[Subscriber] = Turns(pool.size)
        self._rest_until: dict[Subscriber, float] = {}
        self._held_until: dict[Subscriber, float] = {}

    def engine_of(self, delivery: Delivery) -> Subscriber:
        return self._engine_of[delivery.hold.acknowledger]

    @property
    def waiting(self) -> int:
        """Return the number of claimed messages that wait for a thread."""
        return sum(map(len, self.ahead.values()))

    @property
    def startable(self) -> int:
        """Return the number of ``waiting`` messages whose handlers may start a call now."""
        return sum(len(self.ahead[engine]) for engine in self.engines if self._room(engine) > 0)

    def ended(self, job: Job) -> None:
        """Charge the handler for the time of a call that has ended."""
        self._turns.ended(self.engine_of(job.deliveries[0]), job.seconds)

    def claimed(self, engine: Subscriber, count: int, seconds: float) -> None:
        """Charge the handler for the time of a claim. If the claim got nothing, do not repeat it at once."""
        self._turns.charge(engine, seconds)
        if not count and engine.has_work:
            self.rest([engine])

    def rest(self, engines: Iterable[Subscriber]) -> None:
        """Keep no thread free for handlers that cannot claim, for ``REST`` seconds. Groups may be paused or locked."""
        for engine in engines:
            self._rest_until[engine] = time.monotonic() + REST

    def hold_back(self, engine: Subscriber) -> None:
        """Start no message of a handler for a moment, because another transaction has locked its claimed messages."""
        self._held_until[engine] = time.monotonic() + LOCKED_FOR

    def can_start(self, free: int) -> bool:
        """Return whether a message that was claimed ahead may start now."""
        return free > 0 and any(self.ahead[engine] and self._room(engine) > 0 for engine in self.engines)

    def starting(self, free: int, returning: Collection[Subscriber]) -> list[Delivery]:
        """Return the messages claimed ahead that start now, on ``free`` threads.

        ``returning``: handlers whose calls have ended and are not settled yet. Settling them may give them new work.
        """
        contenders = {}
        for engine in self.engines:
            room, claimed = self._room(engine), len(self.ahead[engine])
            most = room if engine in returning or self._has_work(engine) else min(claimed, room)
            if most > 0:
                contenders[engine] = Contender(most, claimed)
        shares = self._turns.share(free, contenders, self._running())
        return [one for engine, share in shares.items() for one in islice(self.ahead[engine], share)]

    def claims(self, free: int, but: Collection[Subscriber] = ()) -> dict[Subscriber, tuple[int, int]]:
        """Return how many messages to claim for each handler: (to start now, ahead). ``but``: handlers to skip."""
        working = [engine for engine in self.engines if engine not in but and self._has_work(engine)]
        contenders = {
            engine: Contender(0 if self.ahead[engine] else self._room(engine))
            for engine in self.engines
            if self._room(engine) > 0 and (self.ahead[engine] or engine in working)
        }
        running = self._running()
        shares = self._turns.share(free, contenders, running)
        spent = {
            engine: self._turns.spent(engine, running, shares.get(engine, 0) + len(self.ahead[engine]))
            for engine in working
        }
        filled = self._filled()
        found = {}
        for engine in sorted(working, key=lambda engine: self._turns.turn_of(spent[engine])):
            share, most = shares.get(engine, 0), self._most_ahead(engine)
            ahead = self._ahead(engine, share, filled, spent[engine])
            if most:
                filled += ahead / most
            if share or ahead:
                found[engine] = (share, ahead)
        return found

    def _ahead(self, engine: Subscriber, share: int, filled: float, spent: float) -> int:
        """Return how many messages to claim beyond the ``share`` that starts at once: at most the work of one turn.

        A handler with more than half of its own limit claimed ahead gets 0. So does a handler without a ``share`` if
        more than half of the process's limit is claimed ahead.
        """
        most, claimed, size = self._most_ahead(engine), len(self.ahead[engine]), self.pool.size
        own = most * min(self.handlers[engine].concurrency or size, size) // size
        if not most or claimed > own // 2 or (filled > 0.5 and not share):
            return 0
        room = most if share else int(most * (1 - filled))
        return max(min(room, own - claimed, self._turns.calls_left(engine, spent)), 0)

    def _filled(self) -> float:
        """Return the fraction of the limit that is claimed ahead. Handlers that cannot start a call do not count."""
        limits = {engine: self._most_ahead(engine) for engine in self.engines if self._room(engine) > 0}
        return sum(len(self.ahead[engine]) / most for engine, most in limits.items() if most)

    def _most_ahead(self, engine: Subscriber) -> int:
        """Return the maximum to claim ahead: 0 for batches, and for slow handlers, as other workers may be free."""
        average = self._turns.average(engine)
        if engine.batch or average >= AHEAD_SECONDS:
            return 0
        return min(int(self.pool.size * AHEAD_SECONDS / max(average, 1e-6)), AHEAD_MAX)

    def _has_work(self, engine: Subscriber) -> bool:
        return self._rest_until.get(engine, -math.inf) <= time.monotonic() and engine.has_work

    def _room(self, engine: Subscriber) -> int:
        """Return how many more calls of this handler may start now."""
        if engine.resting or self._held_until.get(engine, -math.inf) > time.monotonic():
            return 0
        concurrency = self.handlers[engine].concurrency
        return (
            UNLIMITED if concurrency is None else max(concurrency - self.pool.running[engine.acknowledger], 0)
        )

    def _running(self) -> dict[Subscriber, list[float]]:
        """Return the seconds for which each handler's calls have been running."""
        now, found = time.monotonic(), dict[Subscriber, list[float]]()
        for job in self.pool.jobs:
            found.setdefault(self.engine_of(job.deliveries[0]), []).append(max(now - job.started, 0.0))
        return found
