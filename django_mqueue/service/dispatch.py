"""Claims over all subscribers of a process, in turn, with room made for suspects."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from django.db import DatabaseError

from ..policy.solitude import Mode, Solitude, alone_for
from .claiming import UNLIMITED
from .delivery import Delivery
from .engine import Engine


def jobs(deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    """What handlers are given, one each: a message, or a batch."""
    found: dict[object, list[Delivery]] = {}
    for delivery in deliveries:
        hold = delivery.hold
        batch = (hold.answering, hold.ticket.partition)
        found.setdefault(batch if hold.answering.context.options.batch else delivery, []).append(delivery)
    return list(found.values())


class Dispatch:
    """Who of a process's subscribers may claim, and how much.

    ``busy`` counts what runs or is about to; ``room`` limits what one subscriber may have running at once.
    """

    def __init__(
        self,
        engines: list[Engine],
        solitude: Solitude,
        busy: Callable[[], int] = lambda: 0,
        room: Callable[[Engine], int] = lambda engine: UNLIMITED,
    ) -> None:
        self.engines, self.solitude, self.busy, self.room = engines, solitude, busy, room
        self._turn = 0
        self._alone_since: tuple[Delivery, float] | None = None

    def claim(self, capacity: int, start_now: int, most: int = UNLIMITED) -> list[Delivery]:
        """Up to ``capacity`` deliveries; the first ``start_now`` of them go to handlers at once.

        A batch counts as one of them; ``most``: of how many messages all of them may be.
        """
        mode = self._mode()
        if mode in (Mode.ALONE, Mode.BESIDE) and start_now > 0:
            for engine in self.engines:
                with engine.resting_after_lock_wait(), engine.context.lock:
                    if engine.has_suspects and (suspect := engine.claiming.suspect(alone=mode is Mode.ALONE)):
                        return suspect
            mode = Mode.CROWD
        if mode is not Mode.CROWD or capacity <= 0:
            return []
        got: list[Delivery] = []
        for place in range(len(self.engines)):
            engine = self.engines[(self._turn + place) % len(self.engines)]
            if engine.resting:
                continue
            try:
                used = len(jobs(got))
                with engine.resting_after_lock_wait():
                    got += self._crowd(engine, capacity - used, max(start_now - used, 0), most - len(got))
            except DatabaseError:
                if not got:
                    raise
                break  # What others have claimed must reach its handlers; the next statement fails again.
            if len(jobs(got)) >= capacity:
                break
        self._turn += 1
        return got

    def _crowd(self, engine: Engine, capacity: int, start_now: int, most: int) -> list[Delivery]:
        room = self.room(engine)
        if room != UNLIMITED or engine.batch:
            # Ahead of a limit nothing is claimed: it would keep threads from other handlers. Nor are batches.
            capacity = start_now = min(capacity, start_now, room)
        with engine.context.lock:
            return engine.claiming.crowd(capacity, start_now, most)

    def _mode(self) -> Mode:
        now = time.monotonic()
        alone = next((found for engine in self.engines if (found := engine.alone())), None)
        if alone and self._alone_long_enough(alone, now):
            if alone.hold.answering.crowd_again(alone):
                alone = None
            else:
                self._alone_since = (
                    alone,
                    now - alone_for(alone.attempt) + 1,
                )  # Another transaction has it locked.
        in_flight = max(sum(engine.in_flight for engine in self.engines), self.busy())
        return self.solitude.mode(
            in_flight=in_flight,
            alone=alone is not None,
            suspects=any(e.has_suspects for e in self.engines),
            now=now,
        )

    def _alone_long_enough(self, delivery: Delivery, now: float) -> bool:
        if self._alone_since is None or self._alone_since[0] is not delivery:
            self._alone_since = (delivery, now)
        return now - self._alone_since[1] >= alone_for(delivery.attempt)
