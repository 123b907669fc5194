"""Totals per carrier and day, which Spark publishes as messages: the expected totals and the expected deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import add
from typing import NamedTuple

from .bulletins import UNREACHABLE, NoNumber, is_busy
from .hours import Hours, Totals

Day = tuple[str, str]
"""A carrier and a day, as in ``CarrierDay``."""


class Result(NamedTuple):
    """The group's result for a message: whether it is done, and the number of failed attempts."""

    done: bool
    failures: int


def days_of(hours: Hours) -> dict[Day, Totals]:
    """Return the sums of the hours by day."""
    found: dict[Day, Totals] = {}
    for (carrier, hour), totals in hours.items():
        place = carrier, f"{hour:%Y-%m-%d}"
        found[place] = Totals(*map(add, found.get(place, Totals(0, 0, 0, 0)), totals))
    return found


def results_of(days: Iterable[Day]) -> dict[Day, Result]:
    """Return the group's expected results for the messages of these days."""
    return {
        (carrier, day): Result(True, int(carrier == UNREACHABLE or is_busy(day))) for carrier, day in days
    }


def dead_letters_of(days: Iterable[Day]) -> dict[Day, str]:
    """Return the days that must be dead letters, with the expected error."""
    return {(carrier, day): NoNumber.__name__ for carrier, day in days if carrier == UNREACHABLE}


def different_days(want: Mapping[Day, object], have: Mapping[Day, object]) -> Iterator[str]:
    """Yield a line for each day that differs."""
    for place in sorted(want.keys() | have.keys()):
        found, right = have.get(place, "missing"), want.get(place, "missing")
        if found != right:
            yield f"{', '.join(place)}: {found}, should be {right}"


def out_of_order(stored: Iterable[Day]) -> Iterator[str]:
    """Yield a line for each day that follows a later day of its carrier, or that is there twice.

    ``stored``: all days of a topic, in the order of the log.
    """
    last: dict[str, str] = {}
    for carrier, day in stored:
        if day <= last.get(carrier, ""):
            yield f"{carrier}, {day}: follows {last[carrier]}"
        last[carrier] = max(day, last.get(carrier, ""))
