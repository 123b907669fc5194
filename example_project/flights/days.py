"""Totals per carrier and day, which Spark publishes as messages: what they must be, and what must become of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import add
from typing import NamedTuple

from .bulletins import UNREACHABLE, NoNumber, is_busy
from .hours import Hours, Totals

Day = tuple[str, str]
"""A carrier and a day, as in ``CarrierDay``."""


class Fate(NamedTuple):
    """Whether the group is done with a message, and how many attempts have failed."""

    done: bool
    failures: int


def days_of(hours: Hours) -> dict[Day, Totals]:
    """The hours, added up."""
    found: dict[Day, Totals] = {}
    for (carrier, hour), totals in hours.items():
        place = carrier, f"{hour:%Y-%m-%d}"
        found[place] = Totals(*map(add, found.get(place, Totals(0, 0, 0, 0)), totals))
    return found


def fates_of(days: Iterable[Day]) -> dict[Day, Fate]:
    """What the group must have made of their messages."""
    return {(carrier, day): Fate(True, int(carrier == UNREACHABLE or is_busy(day))) for carrier, day in days}


def letters_of(days: Iterable[Day]) -> dict[Day, str]:
    """Those that must be dead letters, and by which error."""
    return {(carrier, day): NoNumber.__name__ for carrier, day in days if carrier == UNREACHABLE}


def different_days(want: Mapping[Day, object], have: Mapping[Day, object]) -> Iterator[str]:
    """Each day that is not as it should be, as a line of text."""
    for place in sorted(want.keys() | have.keys()):
        found, right = have.get(place, "missing"), want.get(place, "missing")
        if found != right:
            yield f"{', '.join(place)}: {found}, should be {right}"


def out_of_order(stored: Iterable[Day]) -> Iterator[str]:
    """Given all days of a topic as they stand there: each that comes behind a later one of its carrier, or again."""
    last: dict[str, str] = {}
    for carrier, day in stored:
        if day <= last.get(carrier, ""):
            yield f"{carrier}, {day}: stands behind {last[carrier]}"
        last[carrier] = max(day, last.get(carrier, ""))
