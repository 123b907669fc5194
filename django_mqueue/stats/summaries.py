"""Topics with their groups, figures, rates and alarms, for the overview of the admin and for ``mqueue status``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from .. import conf
from ..protocol.retention.garbage_collection import is_kept
from . import alarms, numbers
from .alarms import ZERO, Alarm
from .results import Figure, GroupFigures, Hold, KnownTopic, Rates, Series, TopicFigures, total

BLOCKERS_READ = 8
RECENT = 5
"""The rate per minute is the mean over this many minutes."""


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
    groups_left_out: int = 0
    """Number of groups that do not fit on the page."""

    @property
    def alarm_count(self) -> int:
        alarms = [*self.alarms, *(alarm for row in self.groups for alarm in row.alarms)]
        return sum(alarm.is_bad for alarm in alarms)

    @property
    def note_count(self) -> int:
        """The number of notes: alarms that are not bad."""
        return len(self.alarms) + sum(len(row.alarms) for row in self.groups) - self.alarm_count

    @property
    def oldest(self) -> timedelta:
        """The age of the oldest open message of any group."""
        return max((row.figures.oldest_age or ZERO for row in self.groups), default=ZERO)

    @property
    def counted_at(self) -> list[datetime]:
        return [self.figures.at, *(row.figures.at for row in self.groups)]

    def of_groups(self, name: str) -> Figure:
        return total(getattr(row.figures, name) for row in self.groups)


@dataclass(frozen=True)
class Ages:
    """The maximum ages of cached results, in seconds: figures, rates, retention blockers. 0: read them now."""

    figures: float = 0
    rates: float = 0
    blockers: float = 0


def topic_rows(
    topics: Sequence[KnownTopic],
    ages: Ages,
    *,
    groups_max: int | None = None,
    count_limit: int | None = None,
    using: str | None = None,
) -> list[TopicRow]:
    """Return the topics with their groups, figures and alarms, but without rates.

    ``groups_max``: the maximum number of groups of each topic. ``count_limit``: the number of messages up to which they
    are counted. At most 200 topics and 200 groups are allowed.
    """
    names = [known.topic for known in topics]
    shown = {known.topic: known.groups[:groups_max] for known in topics}
    pairs = [(topic, group) for topic, groups in shown.items() for group in groups]
    counted = numbers.group_figures(pairs, exact=count_limit, max_age=ages.figures, using=using)
    figures = numbers.topic_figures(names, exact=count_limit, max_age=ages.figures, using=using)
    overdue = {name: over_retention(one) for name, one in figures.items()}
    blockers = blockers_of([known.topic for known in topics if known.groups], overdue, ages, using)
    rows = []
    for known in topics:
        name = known.topic
        groups = [group_row(counted[name, group]) for group in shown[name]]
        found = alarms.of_topic(known, figures[name], blockers.get(name), overdue[name])
        rows.append(TopicRow(known, figures[name], None, groups, found, len(known.groups) - len(groups)))
    return rows


def with_rates(
    rows: Sequence[TopicRow],
    ages: Ages,
    *,
    span: timedelta = timedelta(hours=1),
    using: str | None = None,
) -> list[TopicRow]:
    """Return the rows with their rates in steps of one minute. The rates of a topic cost about ten queries."""
    pairs = [(row.known.topic, one.figures.group) for row in rows for one in row.groups]
    wanted = [*((row.known.topic, None) for row in rows), *pairs]
    points = span // timedelta(minutes=1)
    rates = numbers.rates(wanted, span=span, points=points, max_age=ages.rates, using=using)
    return [
        replace(
            row,
            rates=rates[row.known.topic, None],
            groups=[replace(one, rates=rates[row.known.topic, one.figures.group]) for one in row.groups],
        )
        for row in rows
    ]


def over_retention(figures: TopicFigures) -> timedelta:
    """Return how far a topic's oldest message is past its retention; negative if not yet due, 0 if it is kept."""
    if figures.oldest_published_at is None or is_kept(figures.topic):
        return timedelta()
    kept_for = timedelta(milliseconds=conf.retention_ms(figures.topic))
    return figures.at - figures.oldest_published_at - kept_for


def blockers_of(
    topics: Sequence[str], overdue: Mapping[str, timedelta], ages: Ages, using: str | None
) -> dict[str, list[Hold]]:
    """Return the retention blockers of the topics furthest past retention. Each topic costs several queries."""
    late = sorted((name for name in topics if overdue[name] > timedelta()), key=lambda name: -overdue[name])
    return {name: numbers.holds(name, max_age=ages.blockers, using=using) for name in late[:BLOCKERS_READ]}


def group_row(figures: GroupFigures) -> GroupRow:
    late_after = timedelta(seconds=conf.get("LATE_AFTER", figures.topic))
    return GroupRow(figures, None, alarms.of_group(figures, late_after))


def recently(rates: Rates, series: Series) -> float:
    """Return the recent rate per minute of a series with steps of one minute. The last step may be unfinished."""
    last = series.values[-RECENT:]
    end = rates.start + len(series.values) * rates.step
    over = timedelta() if rates.at is None else max(end - rates.at, timedelta())
    return sum(last) / max(len(last) - over / timedelta(minutes=1), 1)
