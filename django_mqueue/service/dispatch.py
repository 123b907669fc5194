"""Claims over all subscribers of a process, in turn, with room made for suspects."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from django.db import DatabaseError

from ..policy.solitude import Mode, Solitude, alone_for
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
    """Who of a process's subscribers may claim, and how much. ``busy`` counts what runs or is about to."""

    def __init__(
        self, engines: list[Engine], solitude: Solitude, busy: Callable[[], int] = lambda: 0
    ) -> None:
        self.engines, self.solitude, self.busy = engines, solitude, busy
        self._turn = 0
        self._alone_since: tuple[Delivery, float] | None = None

    def suspects(self, free: int) -> list[Delivery] | None:
        """Claim a suspect whose time has come, if a thread is ``free``. None: claim as usual; empty: claim nothing."""
        mode = self._mode()
        if mode in (Mode.ALONE, Mode.BESIDE) and free > 0:
            for engine in self.engines:
                with engine.resting_after_lock_wait(), engine.context.lock:
                    if engine.has_suspects and (suspect := engine.claiming.suspect(alone=mode is Mode.ALONE)):
                        return suspect
            return None
        return None if mode is Mode.CROWD else []

    def claim(self, capacity: int) -> list[Delivery]:
        """Claim up to ``capacity`` deliveries, to be handled at once. A batch counts as one."""
        suspects = self.suspects(capacity)
        if suspects is not None:
            return suspects
        got: list[Delivery] = []
        for place in range(len(self.engines)):
            engine = self.engines[(self._turn + place) % len(self.engines)]
            room = capacity - len(jobs(got))
            try:
                got += engine.claim(room, room)
            except DatabaseError:
                if not got:
                    raise
                break  # What others have claimed must reach its handlers; the next statement fails again.
            if len(jobs(got)) >= capacity:
                break
        self._turn += 1
        return got

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
