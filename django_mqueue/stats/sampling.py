"""What some rows of the log tell of all of them: numbers with their errors, and numbers over time.

The log is cut into strata, ranges of offsets, and the first few rows of each are looked at. How many rows the rest of a
stratum holds follows from how dense those were: the unbiased estimate of inverse sampling (J. B. S. Haldane, "On a
method of estimating frequencies", Biometrika 33, 1945), which is exact where offsets have no gaps. What share of them
is of a kind is taken from the first rows of this stratum and of the next one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from .results import ABOUT, Figure, Percentiles, Series

DONE, PENDING, IN_FLIGHT, WAITING, KEPT = ("done", "pending", "in_flight", "waiting", "kept")

DEVIATIONS = 2.5
"""Errors are so many standard deviations: these are themselves estimated, from few strata."""
LEAST_ERROR = 0.01
"""Of what was not counted: what no sample can see."""


@dataclass(frozen=True)
class Sampled:
    """A message of a sample. ``status``: how it stands with a group, ``KEPT`` where none was asked for, None if it is
    for another. Times are epoch milliseconds. ``once``: it was delivered only once, at ``delivered_at``. ``started``: a
    handler was given it then; ``skipped``: its filter did not want it. ``target``: the only group that it is for;
    ``failed_group``: whose dead letter it is."""

    offset: int
    published_at: int
    status: str | None = KEPT
    delivered_at: int | None = None
    done_at: int | None = None
    once: bool = False
    started: bool = False
    skipped: bool = False
    target: str = ""
    failed_group: str | None = None


@dataclass(frozen=True)
class Stratum:
    """The first rows from the offset ``low`` to before ``high``; ``complete``: all of them."""

    low: int
    high: int
    rows: tuple[Sampled, ...]
    complete: bool

    @property
    def rest(self) -> int:
        """Offsets that were not looked at."""
        return 0 if self.complete or not self.rows else self.high - 1 - self.rows[-1].offset

    @property
    def density(self) -> float | None:
        """Rows for each offset; None where there are too few to tell."""
        if self.complete and self.high - self.low > 1:
            return len(self.rows) / (self.high - self.low)
        looked = self.rows[-1].offset - self.low + 1 if self.rows else 0
        return (len(self.rows) - 1) / (looked - 1) if looked > 1 else None

    def share(self, test: Test) -> float:
        return sum(map(test, self.rows)) / len(self.rows) if self.rows else 0.0

    @property
    def size(self) -> float:
        """About how many rows it holds."""
        return len(self.rows) + self.rest * (1.0 if self.density is None else self.density)


Test = Callable[[Sampled], bool]
Interval = tuple[float, float, float]
"""Messages spread evenly over a time: its begin, its end, how many."""


def figure(strata: Sequence[Stratum], test: Test) -> Figure:
    """How many rows of all strata (in order) pass a test."""
    counted, more, variance = 0, 0.0, 0.0
    for stratum, mine, following in _with_next(strata, test):
        counted += sum(map(test, stratum.rows))
        more += stratum.rest * (mine + following) / 2
        variance += (stratum.rest * (mine - following)) ** 2 / 2
    if not any(stratum.rest for stratum in strata):
        return Figure(counted, least=counted)
    error = max(DEVIATIONS * math.sqrt(variance), more * LEAST_ERROR)
    return Figure(counted + round(more), ABOUT, math.ceil(error), counted)


def _with_next(strata: Sequence[Stratum], test: Test) -> Iterable[tuple[Stratum, float, float]]:
    """Each stratum, with the density of what passes the test in it, and in the next that is not empty."""
    following: Stratum | None = None
    found = []
    for stratum in reversed(strata):
        density = 1.0 if stratum.density is None else stratum.density
        mine = there = density * stratum.share(test)
        if following is not None:
            there = (density if following.density is None else following.density) * following.share(test)
        found.append((stratum, mine, there))
        if stratum.rows:
            following = stratum
    return reversed(found)


def spread(strata: Sequence[Stratum], test: Test, time: Callable[[Sampled], int]) -> list[Interval]:
    """When those that pass a test had their ``time``: each at its own, and the rest of a stratum between those of its
    first rows and those of the next stratum's, the earlier with the earlier."""
    found: list[Interval] = []
    times = [sorted(time(row) for row in stratum.rows if test(row)) for stratum in strata]
    for number, (stratum, mine, following) in enumerate(_with_next(strata, test)):
        found += [(at, at, 1.0) for at in times[number]]
        mass = stratum.rest * (mine + following) / 2
        if mass > 0:
            here = times[number]
            there = times[number + 1] if number + 1 < len(times) else []
            pairs = _paired(here or there, there or here)
            found += [(min(a, b), max(a, b), mass / len(pairs)) for a, b in pairs]
    return found


def _paired(some: Sequence[int], others: Sequence[int]) -> list[tuple[int, int]]:
    """As many pairs as the longer has members: each quantile of the one with the same of the other."""
    count = max(len(some), len(others))
    return [(some[n * len(some) // count], others[n * len(others) // count]) for n in range(count)]


def series(
    intervals: Iterable[Interval], start: int, step: int, points: int, *, how: str, error: int = 0
) -> Series:
    """How many fall into each of ``points`` steps from ``start`` on. ``how`` and ``error`` are of their sum."""
    values = [0.0] * points
    counted = 0
    for begin, end, mass in intervals:
        first, last = (begin - start) / step, (end - start) / step
        if last < 0 or first >= points:
            continue
        if end == begin:
            values[int(first)] += mass
            counted += mass == 1.0
            continue
        for place in range(max(0, math.floor(first)), min(points, math.ceil(last))):
            part = min(last, place + 1) - max(first, place)
            values[place] += mass * max(part, 0.0) / (last - first)
    total = round(sum(values))
    least = min(counted, total)
    return Series(tuple(map(round, values)), Figure(total, how, error, least))


def percentiles(values: Sequence[tuple[int, float]]) -> Percentiles | None:
    """Of (milliseconds, how many it stands for): the least value that so many are not above."""
    if not values:
        return None
    ordered = sorted(values)
    whole = sum(weight for _, weight in ordered)

    def rank(part: float) -> timedelta:
        passed = 0.0
        for value, weight in ordered:
            passed += weight
            if passed >= part * whole - 1e-9:
                return timedelta(milliseconds=value)
        return timedelta(milliseconds=ordered[-1][0])

    return Percentiles(rank(0.50), rank(0.95), rank(0.99), len(ordered))


def worth_splitting(strata: Sequence[Stratum], since: int, step: int) -> list[int]:
    """Which strata tell too little, the largest first: those that differ from the next one, and those whose messages
    were published, or done, over more than a ``step`` of the time from ``since`` on."""
    found = []
    for number, stratum in enumerate(strata):
        if stratum.rest < 2:
            continue
        following = next((other for other in strata[number + 1 :] if other.rows), None)
        rows = (*stratum.rows, *(following.rows if following else ()))
        if len({_kind(row, since) for row in rows}) > 1 or any(
            _extent(times, since) > step
            for times in (
                [row.published_at for row in rows],
                [row.done_at for row in rows if row.done_at is not None],
            )
        ):
            found.append(number)
    return sorted(found, key=lambda number: -strata[number].size)


def _kind(row: Sampled, since: int) -> object:
    return (row.status, row.done_at is not None and row.done_at >= since)


def _extent(times: Sequence[int], since: int) -> int:
    return max(times) - max(min(times), since) if times else 0


def cut(low: int, high: int, parts: int) -> list[tuple[int, int]]:
    """The range of offsets in so many about equal ones, or less."""
    parts = max(1, min(parts, high - low))
    bounds = [low + (high - low) * number // parts for number in range(parts + 1)]
    return [(a, b) for a, b in pairwise(bounds) if a < b]


Place = tuple[int, int]
"""An offset, and when it was published."""

NEAR = 64
"""A guess of an offset by its time is looked at this part of the range around it."""


def halves(low: Place, high: Place, moment: int) -> list[tuple[int, int]]:
    """The offsets between two in some ranges: of equal halves, and small ones where the moment would be if times rose
    evenly. One step of a search takes at least half of the range away, and mostly nearly all."""
    (first, first_at), (last, last_at) = low, high
    near = max((last - first) // NEAR, 1)
    guess = first + (last - first) * (moment - first_at) // max(last_at - first_at, 1)
    inner = {(first + last) // 2, guess - near, guess, guess + near}
    bounds = [first + 1, *sorted(at for at in inner if first + 1 < at < last), last]
    return [(a, b) for a, b in pairwise(bounds) if a < b]
