"""One run: start all processes, cause faults for some time, finish all messages, and check the history."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from example_project.environment.server import PrivateServer
from tests.proof.checker import Breach, Rules, Summary, check, summary
from tests.proof.crew import Crew, Kind
from tests.proof.disk import Disk
from tests.proof.faults import possible
from tests.proof.history import Closed, Sent, Writer, now, read
from tests.proof.observer import Observer
from tests.proof.plan import GROUPS
from tests.proof.scene import Scene
from tests.support.processes import wait_until

TICK = 0.05
LOOK_EVERY = 0.5
SLACK = 3.0


@dataclass(frozen=True)
class Options:
    """The options of a run. Times are in seconds, and ``rate`` is in messages per second.

    ``every`` is the average time between faults. ``slack`` is extra time for a busy machine, beyond the promises;
    ``takeover``: for takeovers, if it differs. ``drain`` is the time limit for the remaining messages.
    ``least``: the faults continue until so many messages are committed, but at most ``drain`` seconds longer.
    """

    seed: int
    seconds: float
    every: float = 3.0
    rate: float = 400.0
    lease: float = 5.0
    threads: int = 8
    workers: int = 3
    hands: int = 2
    publishers: int = 3
    slack: float = SLACK
    takeover: float | None = None
    drain: float = 300.0
    least: int = 0


@dataclass(frozen=True)
class Result:
    summary: Summary
    breaches: list[Breach]
    faults: dict[str, int]
    complaints: list[str]


class Run:
    """``say`` receives a progress report every 15 seconds."""

    def __init__(
        self,
        options: Options,
        directory: Path,
        url: str,
        parameters: dict[str, Any],
        server: PrivateServer | None,
        disk: Disk | None,
        say: Callable[[str], None],
    ) -> None:
        self.options, self.directory, self.say = options, directory, say
        self.history = Writer(directory, "run")
        dice = random.Random(options.seed)
        self.crew = Crew(
            directory,
            url,
            self.history,
            random.Random(dice.random()),
            lease=options.lease,
            threads=options.threads,
            rate=options.rate / options.publishers,
        )
        self.observer = Observer(parameters, directory, self.history, options.lease)
        self.scene = Scene(
            self.crew, self.history, random.Random(dice.random()), parameters, server, disk, options.lease
        )
        self.faults: dict[str, int] = {}
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._looked = 0

    def __call__(self) -> Result:
        try:
            self._begin()
            self._under_faults()
            self._drain()
            self.observer.report()
        finally:
            self.observer.close()
            self.crew.close()
            self.history.close()
        events = read(self.directory)
        return Result(
            summary(events),
            check(events, Rules(self.options.lease, self.options.slack, self.options.takeover)),
            self.faults,
            self.crew.complaints,
        )

    def _begin(self) -> None:
        self.observer.prepare()
        self.history.write(*(group.registered(now()) for group in GROUPS))
        self._join("worker", self.options.workers)
        self._join("hand", self.options.hands)
        # Messages published earlier could be deleted as soon as the groups registered so far have finished them.
        wait_until(self.observer.knows_all_groups, "all groups are registered")
        self._join("publisher", self.options.publishers)

    def _join(self, kind: Kind, count: int) -> None:
        for place in range(count):
            self.crew.join(kind, f"{kind}-{place}")

    def _under_faults(self) -> None:
        dice = self.scene.dice
        end, told = time.monotonic() + self.options.seconds, time.monotonic()
        latest = end + self.options.drain
        fault_at = time.monotonic() + self.options.every
        while (moment := time.monotonic()) < end or (moment < latest and not self._has_committed_enough()):
            self._tick()
            if moment >= fault_at:
                self._one_fault()
                fault_at = time.monotonic() + dice.expovariate(1 / self.options.every)
            if moment - told > 15:
                told = moment
                kills = sum(self.faults.values())
                self.say(
                    f"{end - moment:6.0f} s to go, {kills} faults so far, {self.observer.backlog} in the log"
                )

    def _has_committed_enough(self) -> bool:
        """Return True if the publishers know that ``least`` messages or more are committed."""
        if not self.options.least:
            return True
        events = read(self.directory)
        committed = {
            one.transaction for one in events if isinstance(one, Closed) and one.outcome == "committed"
        }
        sent = [one for one in events if isinstance(one, Sent) and one.transaction in committed]
        return len(sent) >= self.options.least

    def _one_fault(self) -> None:
        faults = possible(self.scene)
        fault = self.scene.dice.choices(list(faults), list(faults.values()))[0]
        self.faults[fault.__name__] = self.faults.get(fault.__name__, 0) + 1
        if later := fault(self.scene):
            seconds, end = later
            heapq.heappush(self._later, (time.monotonic() + seconds, next(self._number), end))

    def _tick(self) -> None:
        threading.Event().wait(TICK)
        self.scene.tend_server()
        self.crew.tend()
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()
        if now() - self._looked > LOOK_EVERY * 1e9:
            self._looked = now()
            self.observer.look()

    def _drain(self) -> None:
        """Stop the faults and the publishers. Wait until the queue has finished and deleted all messages."""
        while self._later:
            heapq.heappop(self._later)[2]()
        for member in self.crew.members:
            self.crew.resume(member)
        self._leave("publisher")
        self.say("draining")
        end = time.monotonic() + self.options.drain
        while time.monotonic() < end and not self.observer.is_empty():
            self._tick()
        self._leave("worker", "hand")

    def _leave(self, *kinds: str) -> None:
        self.crew.everybody_leaves(*kinds)  # type: ignore[arg-type]
        end = time.monotonic() + 60
        while any(m.kind in kinds for m in self.crew.members):
            self._tick()
            if time.monotonic() > end:
                self.crew.complaints.append(f"{[m.name for m in self.crew.members]} did not leave")
                return
