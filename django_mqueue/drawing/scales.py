"""Axes of charts: the positions of their marks, and the format of numbers, durations and times. Pure functions."""

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
"""The distances between the marks of an axis of durations, in milliseconds."""
_CLOCK = tuple(n * MINUTE for n in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 7_200, 14_400))
"""The distances between the marks of a time axis, in milliseconds."""


@dataclass(frozen=True)
class Unit:
    """The unit of a chart's values.

    ``step(top, most)`` returns the distance of at most ``most`` marks up to the value ``top``. ``say`` formats a value.
    """

    step: Callable[[float, int], float]
    say: Callable[[float], str]

    def marks(self, top: float, most: int = 4) -> list[float]:
        """Return 0 and at most ``most`` marks above it. The last mark is at or above ``top``."""
        step = self.step(top, most)
        return [step * n for n in range(max(math.ceil(top / step - 1e-9), 1) + 1)]


def count_step(top: float, most: int) -> float:
    """Return the distance of marks at whole numbers: 1, 2 or 5 times a power of ten."""
    least = max(top / most, 1)
    power = 10 ** math.floor(math.log10(least))
    return float(next(n * power for n in (1, 2, 5, 10) if n * power >= least * (1 - 1e-9)))


def time_step(top: float, most: int) -> float:
    least = top / most
    return float(next((step for step in _TIMES if step >= least), _TIMES[-1] * math.ceil(least / _TIMES[-1])))


def count(value: float) -> str:
    """Format a number, with one decimal for fractions below 10: ``12``, ``12,345``, ``0.4``."""
    if value < 10 and value != round(value):
        return f"{value:.1f}"
    return f"{round(value):,}"


def short_count(value: float) -> str:
    """Format a number for an axis: ``950``, ``12k``, ``1.5M``."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= size * 0.9995:  # Three digits round it to at least ``size``.
            return f"{value / size:.3g}{letter}"
    return count(value)


def duration(ms: float) -> str:
    """Format milliseconds: ``340 ms``, ``2.5 s``, ``40 s``, ``3 min``, ``2 h 5 min``, ``4 d 3 h``."""
    return " ".join(f"{number} {unit}" for number, unit in duration_parts(ms))


def duration_parts(ms: float) -> list[tuple[str, str]]:
    """Return the (number, unit) of each part of a duration: ``[("2", "h"), ("5", "min")]``."""
    if ms < SECOND:
        return [(f"{round(ms)}", "ms")]
    if ms < 10 * SECOND:
        return [(f"{ms / SECOND:.1f}".removesuffix(".0"), "s")]
    if ms < 59.5 * SECOND:
        return [(f"{round(ms / SECOND)}", "s")]
    for size, name, part, part_name in (
        (DAY, "d", HOUR, "h"),
        (HOUR, "h", MINUTE, "min"),
        (MINUTE, "min", SECOND, "s"),
    ):
        if ms >= size - part / 2:
            whole, rest = divmod(round(ms / part), size // part)
            return [(f"{whole:,}", name), (f"{rest}", part_name)] if rest else [(f"{whole:,}", name)]
    raise AssertionError(ms)


COUNT = Unit(count_step, short_count)
TIME = Unit(time_step, duration)


def moments(
    start: datetime, span: timedelta, zone: tzinfo, most: int = 6, *, gettext: Callable[[str], str] = str
) -> list[tuple[float, str]]:
    """Return (position from 0 to 1, label) of each mark of a time axis.

    The marks are at full minutes, hours or days of the time zone. If the axis is longer than a day, the label of
    midnight is its date. ``gettext`` translates the month: Django's catalogues have "jan" to "dec".
    """
    ms = span / timedelta(milliseconds=1)
    step = next((one for one in _CLOCK if ms / one <= most), math.ceil(ms / most / DAY) * DAY)
    begin = start.timestamp() * 1000
    shift = (start.astimezone(zone).utcoffset() or timedelta()) / timedelta(milliseconds=1)
    at = math.ceil((begin + shift) / step) * step - shift
    found = []
    while at <= begin + ms:
        then = (start + timedelta(milliseconds=at - begin)).astimezone(zone)
        days = step >= DAY or (ms > DAY and then.hour == then.minute == 0)
        month = then.strftime("%b").lower()
        found.append(((at - begin) / ms, f"{then:%d} {gettext(month).title()}" if days else f"{then:%H:%M}"))
        at += step
    return found


def top_of(rows: Sequence[Sequence[float | None]]) -> float:
    """Return the largest known value; 0 if no value is known."""
    return max((value for row in rows for value in row if value is not None), default=0)
