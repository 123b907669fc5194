"""Axes of charts: where their marks stand, and how numbers, times and moments are written. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000

_TIMES = (
    *(n * 10**power for power in range(3) for n in (1, 2, 5)),
    *(n * SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * HOUR for n in (1, 2, 3, 6, 12)),
    *(n * DAY for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)),
)
"""Steps, in milliseconds, that people count times by."""
_CLOCK = tuple(n * MINUTE for n in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 7_200, 14_400))
"""Steps, in milliseconds, of an axis of moments."""


@dataclass(frozen=True)
class Unit:
    """What a chart's values are. ``steps`` gives the distance of the marks up to a value, ``say`` writes one."""

    name: str
    step: Callable[[float, int], float]
    say: Callable[[float], str]

    def marks(self, top: float, most: int = 4) -> list[float]:
        """At most ``most`` marks above 0, and 0: the last one is at or above ``top``."""
        step = self.step(top, most)
        return [step * n for n in range(max(math.ceil(top / step - 1e-9), 1) + 1)]


def count_step(top: float, most: int) -> float:
    """Whole numbers: 1, 2 or 5 with noughts."""
    least = max(top / most, 1)
    power = 10 ** math.floor(math.log10(least))
    return float(next(n * power for n in (1, 2, 5, 10) if n * power >= least * (1 - 1e-9)))


def time_step(top: float, most: int) -> float:
    least = top / most
    return float(next((step for step in _TIMES if step >= least), _TIMES[-1] * math.ceil(least / _TIMES[-1])))


def count(value: float) -> str:
    """``12``, ``12,345``, ``0.4``: as exact as is of use."""
    if value < 10 and value != round(value):
        return f"{value:.1f}"
    return f"{round(value):,}"


def short_count(value: float) -> str:
    """``950``, ``12k``, ``1.5M``: for axes."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return count(value)


def duration(ms: float) -> str:
    """``340 ms``, ``2.5 s``, ``40 s``, ``3 min``, ``2 h 5 min``, ``4 d 3 h``."""
    if ms < SECOND:
        return f"{round(ms)} ms"
    if ms < 10 * SECOND:
        return f"{ms / SECOND:.1f}".removesuffix(".0") + " s"
    if ms < 59.5 * SECOND:
        return f"{round(ms / SECOND)} s"
    for size, name, part, part_name in (
        (DAY, "d", HOUR, "h"),
        (HOUR, "h", MINUTE, "min"),
        (MINUTE, "min", SECOND, "s"),
    ):
        if ms >= size - part / 2:
            whole, rest = divmod(round(ms / part), size // part)
            return f"{whole:,} {name} {rest} {part_name}" if rest else f"{whole:,} {name}"
    raise AssertionError(ms)


def age(time: timedelta) -> str:
    """How long ago: never less than nothing, and no milliseconds."""
    ms = time / timedelta(milliseconds=1)
    return "under 1 s" if ms < SECOND else duration(ms)


COUNT = Unit("messages", count_step, short_count)
TIME = Unit("time", time_step, duration)


def moments(start: datetime, span: timedelta, zone: tzinfo, most: int = 6) -> list[tuple[float, str]]:
    """(place between 0 and 1, label) of the marks of an axis of moments, at full minutes, hours or days of a zone.

    Midnight is its day, where the axis is longer than one."""
    ms = span / timedelta(milliseconds=1)
    step = next((one for one in _CLOCK if ms / one <= most), math.ceil(ms / most / DAY) * DAY)
    begin = start.timestamp() * 1000
    shift = (start.astimezone(zone).utcoffset() or timedelta()) / timedelta(milliseconds=1)
    at = math.ceil((begin + shift) / step) * step - shift
    found = []
    while at <= begin + ms:
        then = (start + timedelta(milliseconds=at - begin)).astimezone(zone)
        days = step >= DAY or (ms > DAY and then.hour == then.minute == 0)
        found.append(((at - begin) / ms, f"{then:%d %b}" if days else f"{then:%H:%M}"))
        at += step
    return found


def top_of(rows: Sequence[Sequence[float | None]]) -> float:
    """The largest value that is known; 0 where none is."""
    return max((value for row in rows for value in row if value is not None), default=0)
