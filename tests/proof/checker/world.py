"""The faults of a run: stopped and killed workers, server downtime, and stolen leases."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator

FOREVER = 1 << 62


class Spans:
    """Spans of time, added in the order of time. A single moment is also a span."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.ends: list[int] = []

    @property
    def open(self) -> bool:
        return len(self.begins) > len(self.ends)

    def begin(self, at: int) -> None:
        self.begins.append(at)

    def end(self, at: int) -> None:
        self.ends.append(at)

    def count(self, first: int, last: int) -> int:
        """Return how many spans touch the time from ``first`` to ``last``. Overlapping spans each count."""
        return max(bisect_right(self.begins, last) - bisect_left(self.ends, first), 0)


class Single(Spans):
    """Spans that never overlap. A second begin or end has no effect."""

    def begin(self, at: int) -> None:
        if not self.open:
            super().begin(at)

    def end(self, at: int) -> None:
        if self.open:
            super().end(at)

    def moment(self, at: int) -> None:
        self.begin(at)
        self.end(at)

    def all(self) -> Iterator[tuple[int, int]]:
        ends = [*self.ends, FOREVER] if self.open else self.ends
        yield from zip(self.begins, ends, strict=True)


class World:
    """The faults of a run. The methods report what may have happened to a worker in a span of time.

    The time from ``disk full`` to ``disk free`` counts as server downtime. A ``disk full`` without a ``disk free`` has
    no effect. A worker that consumes by hand also writes ``silent`` and ``heard``: it did not poll in between, so it
    did not renew its leases. This counts as a stop. It writes ``abandoned`` when an error interrupts a batch: it drops
    the open deliveries and starts again. This counts as a kill.
    """

    def __init__(self) -> None:
        self.down, self.full = Single(), Single()
        self.stops: defaultdict[str, Single] = defaultdict(Single)
        self.silences: defaultdict[str, Single] = defaultdict(Single)
        self.kills: defaultdict[str, Single] = defaultdict(Single)
        self.lives: defaultdict[str, Single] = defaultdict(Single)
        self.thefts: defaultdict[str, Single] = defaultdict(Single)
        self.ready: dict[str, int] = {}
        """When each worker had imported its handlers."""
        self.locks = Spans()
        """Each time at which an outside connection began to lock rows of all tables."""
        self.deaths, self.idle_deaths = Spans(), Spans()
        """All faults that may keep a delivery from its handler, and the part of them that hit idle workers."""
        self._idle_stops: set[str] = set()
        self._full_since = 0

    def note(self, kind: str, target: str, at: int, *, idle: bool) -> None:
        """Add one fault, in the order of time. ``idle``: the worker ``target`` ran no message at that time."""
        if kind in ("server down", "server up"):
            self._span(self.down, at, begins=kind == "server down", idle=True)
        elif kind == "disk full":
            self._full_since = self._full_since or at
        elif kind == "disk free" and self._full_since:
            self.full.begin(self._full_since)
            self.full.end(at)
            self._dies(at, idle=True)
            self._full_since = 0
        elif kind == "stopped":
            if not self.stops[target].open:
                if idle:
                    self._idle_stops.add(target)
                self._span(self.stops[target], at, begins=True, idle=idle)
        elif kind == "continued":
            self._goes_on(target, at)
        elif kind == "silent":
            self.silences[target].begin(at)
        elif kind == "heard":
            self.silences[target].end(at)
        elif kind == "rows locked":
            self.locks.begin(at)
            self.locks.end(at)
        elif kind == "abandoned":
            self.kills[target].moment(at)
            self._dies(at, idle)
        elif kind == "joined":
            self.lives[target].begin(at)
        elif kind == "ready":
            self.ready[target] = at
        elif kind in ("killed", "left"):
            self._goes_on(target, at)
            self.lives[target].end(at)
            if kind == "killed":
                self.kills[target].moment(at)
                self._dies(at, idle)
        elif kind == "stolen":
            self.thefts[target].moment(at)
            if target[-6:-4] == "  ":  # The name of a keyless partition is a blank and four digits.
                self.thefts[target[:-6]].moment(at)
            self._dies(at, idle=True)

    def is_over(self, worker: str, at: int) -> None:
        """Note the end of a worker that noted its own death earlier. Between the two notes it could not answer."""
        if worker in self.kills:
            self.kills[worker].moment(at)

    def _goes_on(self, worker: str, at: int) -> None:
        if self.stops[worker].open:
            self._span(self.stops[worker], at, begins=False, idle=worker in self._idle_stops)
            self._idle_stops.discard(worker)

    def _span(self, spans: Single, at: int, *, begins: bool, idle: bool) -> None:
        if spans.open == begins:
            return
        for each in (spans, self.deaths, *([self.idle_deaths] if idle else [])):
            each.begin(at) if begins else each.end(at)

    def _dies(self, at: int, idle: bool) -> None:
        for each in (self.deaths, *([self.idle_deaths] if idle else [])):
            each.begin(at)
            each.end(at)

    def shaken(self, worker: str, lease: str, first: int, last: int) -> bool:
        """Return True if a worker may have lost a lease in that time.

        The worker was stopped, the server was down, its disk was full (so no lease could be renewed), or the lease was
        stolen.
        """
        return (
            self.stopped(worker, first, last)
            or self.down.count(first, last) > 0
            or self.full.count(first, last) > 0
            or (lease in self.thefts and self.thefts[lease].count(first, last) > 0)
        )

    def stopped(self, worker: str, first: int, last: int) -> bool:
        """Return True if the worker was stopped or did not poll. Both may be the case."""
        return any(
            worker in spans and spans[worker].count(first, last) > 0 for spans in (self.stops, self.silences)
        )

    def killed(self, worker: str, first: int, last: int) -> bool:
        return worker in self.kills and self.kills[worker].count(first, last) > 0
