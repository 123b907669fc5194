"""Sharing a worker's threads among its handlers: which of them start, which claim, and how many messages ahead."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from ..policy.turns import Contender, Turns
from ..service.claiming import UNLIMITED
from ..service.delivery import Delivery
from ..service.engine import Engine
from .answers import LOCKED_FOR
from .crew import Crew
from .jobs import Job
from .registry import Handler

WORTH = 0.05
"""Seconds of work to claim ahead: a claim takes a few milliseconds, for which quick handlers would wait."""
MOST = 100
"""Messages claimed ahead in a process."""
REST = 0.02
"""Seconds for which a handler whose claim got nothing keeps no thread from the others."""


class Sharing:
    """Shares the threads of ``crew`` by the time that handlers use. ``engines`` are the handlers that run now.

    Only messages that were claimed ahead can start without a claim. So a thread stays free for a handler whose turn
    it is and that has none claimed: one with slow calls, a batch handler, one that has just got work.
    """

    def __init__(self, engines: Sequence[Engine], handlers: Mapping[Engine, Handler], crew: Crew) -> None:
        self.engines, self.handlers, self.crew = engines, handlers, crew
        self.ahead: dict[Engine, deque[Delivery]] = {engine: deque() for engine in engines}
        self._engine_of = {engine.answering: engine for engine in engines}
        self._turns: Turns[Engine] = Turns(crew.size)
        self._rest_until: dict[Engine, float] = {}
        self._held_until: dict[Engine, float] = {}

    def engine_of(self, delivery: Delivery) -> Engine:
        return self._engine_of[delivery.hold.answering]

    @property
    def waiting(self) -> int:
        """How many messages are claimed and wait for a thread."""
        return sum(map(len, self.ahead.values()))

    @property
    def startable(self) -> int:
        """Count the ``waiting`` messages of groups that do not rest, and whose rows were not locked a moment ago."""
        return sum(len(self.ahead[engine]) for engine in self.engines if self._room(engine) > 0)

    def ended(self, job: Job) -> None:
        """Count the time of a call that has ended."""
        self._turns.ended(self.engine_of(job.deliveries[0]), job.seconds)

    def claimed(self, engine: Engine, count: int, seconds: float) -> None:
        """Count the time of a claim. One that got nothing, though there seems to be work, is not repeated at once."""
        self._turns.charge(engine, seconds)
        if not count and engine.has_work:
            self.rest([engine])

    def rest(self, engines: Iterable[Engine]) -> None:
        """Keep no thread free for handlers that cannot claim now: their groups are paused or locked, say."""
        for engine in engines:
            self._rest_until[engine] = time.monotonic() + REST

    def hold_back(self, engine: Engine) -> None:
        """Start nothing of a handler for a moment: another transaction has locked what was claimed ahead."""
        self._held_until[engine] = time.monotonic() + LOCKED_FOR

    def can_start(self, free: int) -> bool:
        """Whether something claimed ahead may start now."""
        return free > 0 and any(self.ahead[engine] and self._room(engine) > 0 for engine in self.engines)

    def starting(self, free: int, returning: Collection[Engine]) -> list[Delivery]:
        """Choose which of the messages claimed ahead start now, on ``free`` threads.

        ``returning``: handlers whose calls have ended and are not answered yet. The answers may make work for them.
        """
        contenders = {}
        for engine in self.engines:
            room, claimed = self._room(engine), len(self.ahead[engine])
            most = room if engine in returning or self._has_work(engine) else min(claimed, room)
            if most > 0:
                contenders[engine] = Contender(most, claimed)
        shares = self._turns.share(free, contenders, self._running())
        return [
            delivery for engine, share in shares.items() for delivery in islice(self.ahead[engine], share)
        ]

    def claims(self, free: int, but: Collection[Engine] = ()) -> dict[Engine, tuple[int, int]]:
        """Which handlers may claim, in this order: for how many of the ``free`` threads, and how many ahead.

        ``but``: handlers whose claim has got less than their share.
        """
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

    def _ahead(self, engine: Engine, share: int, filled: float, spent: float) -> int:
        """How many messages to claim beyond the ``share`` that starts at once: the work of one turn at most.

        A handler whose turn has not come claims more when half of what was claimed ahead has started.
        """
        most, claimed = self._most_ahead(engine), len(self.ahead[engine])
        own = (
            most * min(self.handlers[engine].concurrency or self.crew.size, self.crew.size) // self.crew.size
        )
        if not most or claimed > own // 2 or (filled > 0.5 and not share):
            return 0
        room = most if share else int(most * (1 - filled))
        return max(min(room, own - claimed, self._turns.calls_left(engine, spent)), 0)

    def _filled(self) -> float:
        """What part of the messages to claim ahead is claimed, without handlers that have reached their limit."""
        return sum(
            len(self.ahead[engine]) / most
            for engine in self.engines
            if self._room(engine) > 0 and (most := self._most_ahead(engine))
        )

    def _most_ahead(self, engine: Engine) -> int:
        """Slow handlers get nothing ahead: another worker may be free before they are. Nor do batch handlers."""
        average = self._turns.average(engine)
        if engine.batch or average >= WORTH:
            return 0
        return min(int(self.crew.size * WORTH / max(average, 1e-6)), MOST)

    def _has_work(self, engine: Engine) -> bool:
        return self._rest_until.get(engine, -math.inf) <= time.monotonic() and engine.has_work

    def _room(self, engine: Engine) -> int:
        """How many more calls of this handler may start now."""
        if engine.resting or self._held_until.get(engine, -math.inf) > time.monotonic():
            return 0
        concurrency = self.handlers[engine].concurrency
        return UNLIMITED if concurrency is None else max(concurrency - self.crew.running[engine.answering], 0)

    def _running(self) -> dict[Engine, list[float]]:
        """For how many seconds each handler's calls have been running."""
        now, found = time.monotonic(), dict[Engine, list[float]]()
        for job in self.crew.jobs:
            found.setdefault(self.engine_of(job.deliveries[0]), []).append(max(now - job.started, 0.0))
        return found
