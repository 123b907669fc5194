"""The order of the overview's topics, and their totals. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ...inspect import Figure, GroupFigures, KnownTopic, Rates, TopicFigures
from ...stats.results import total
from .alarms import Alarm

NOTHING = timedelta()


@dataclass(frozen=True)
class GroupRow:
    figures: GroupFigures
    rates: Rates | None
    alarms: list[Alarm]


@dataclass(frozen=True)
class TopicRow:
    known: KnownTopic
    figures: TopicFigures
    rates: Rates | None
    groups: list[GroupRow]
    alarms: list[Alarm]
    unseen: int = 0
    """Number of groups that do not fit on the page."""

    @property
    def bad(self) -> int:
        told = [*self.alarms, *(alarm for row in self.groups for alarm in row.alarms)]
        return sum(alarm.is_bad for alarm in told)

    @property
    def notes(self) -> int:
        """The number of notes: alarms that are not bad."""
        return len(self.alarms) + sum(len(row.alarms) for row in self.groups) - self.bad

    @property
    def oldest(self) -> timedelta:
        """The age of the oldest open message of any group."""
        return max((row.figures.oldest_age or NOTHING for row in self.groups), default=NOTHING)

    @property
    def counted_at(self) -> list[datetime]:
        return [self.figures.at, *(row.figures.at for row in self.groups)]

    def of_groups(self, name: str) -> Figure:
        return total(getattr(row.figures, name) for row in self.groups)


@dataclass(frozen=True)
class Totals:
    """Sums over some topics. ``oldest``: the age of their oldest open message."""

    topics: int
    groups: int
    kept: Figure
    pending: Figure
    in_flight: Figure
    waiting: Figure
    scheduled: Figure
    dead: Figure
    oldest: timedelta | None
    workers: int


WORST = "worst"
SORTS: dict[str, Callable[[TopicRow], Any]] = {
    WORST: lambda row: (row.bad, row.figures.dead.value, row.oldest),
    "pending": lambda row: row.of_groups("pending").value,
    "in_flight": lambda row: row.of_groups("in_flight").value,
    "waiting": lambda row: row.of_groups("waiting").value,
    "scheduled": lambda row: row.figures.scheduled.value,
    "dead": lambda row: row.figures.dead.value,
    "oldest": lambda row: row.oldest,
    "workers": lambda row: sum(one.figures.workers for one in row.groups),
}
"""Sort keys; the greatest value is first. ``NAME`` is the other order."""
NAME = "name"


def ordered(rows: Iterable[TopicRow], sort: str) -> list[TopicRow]:
    """Return the rows by name, or the greatest first and equal rows by name."""
    by_name = sorted(rows, key=lambda row: row.known.topic)
    return by_name if sort == NAME else sorted(by_name, key=SORTS[sort], reverse=True)


def totals(rows: Sequence[TopicRow]) -> Totals:
    pages = [one.figures for row in rows for one in row.groups]
    return Totals(
        len(rows),
        len(pages),
        total(row.figures.kept for row in rows),
        total(one.pending for one in pages),
        total(one.in_flight for one in pages),
        total(one.waiting for one in pages),
        total(row.figures.scheduled for row in rows),
        total(row.figures.dead for row in rows),
        max((row.oldest for row in rows), default=NOTHING) or None,
        sum(one.workers for one in pages),
    )


@dataclass(frozen=True)
class Standing:
    """One page of the overview.

    ``page``: its number, from 1 to ``pages``. ``totals``, ``bad`` and ``notes``: over all pages. ``at``: the time of
    the oldest count. ``unseen``: the number of topics without counts.
    """

    rows: list[TopicRow]
    page: int
    pages: int
    sort: str
    at: datetime | None
    bad: int
    notes: int
    totals: Totals
    unseen: int = 0

    @property
    def has_dead_letters(self) -> bool:
        return self.totals.dead.value > 0
