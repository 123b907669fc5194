"""Rows for the overview and for the lists of topics and groups: one page at a time, in few queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from ... import conf, inspect
from ...inspect import Figure, GroupFigures, Hold, KnownTopic, Rates, Series, TopicFigures
from ...stats import triage
from ...stats.results import total
from ...store.connection import session
from . import alarms
from .alarms import NOTHING, Alarm

TOPICS_ON_A_PAGE = 25
TOPICS_ON_THE_OVERVIEW = 5
"""The rates of a topic cost about ten queries: they read published and finished messages."""
SUBJECTS_COUNTED = 200
"""Maximum number of topics and groups together that the overview counts: the limit of ``inspect`` for one call."""
GROUPS_OF_A_TOPIC = 30
BLOCKERS_READ = 8
RECENT = 5
"""The rate per minute is the mean over this many minutes."""
SPARK_POINTS = 60

COUNTED, SURVEYED, RATED, HELD, KNOWN = 5.0, 30.0, 30.0, 30.0, 15.0
"""Seconds for which results are cached, so that many viewers cost one query. ``SURVEYED``: for the counts by which all
topics are sorted."""


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
        alarms = [*self.alarms, *(alarm for row in self.groups for alarm in row.alarms)]
        return sum(alarm.is_bad for alarm in alarms)

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
"""Sort keys, the greatest value first. ``NAME`` needs no key."""
NAME = "name"


def ordered(rows: Iterable[TopicRow], sort: str) -> list[TopicRow]:
    """Return the rows by name, or the greatest first and equal rows by name."""
    by_name = sorted(rows, key=lambda row: row.known.topic)
    return by_name if sort == NAME else sorted(by_name, key=SORTS[sort], reverse=True)


def totals(rows: Sequence[TopicRow]) -> dict[str, Any]:
    """Return sums over some topics, and the age of their oldest open message."""
    groups = [one.figures for row in rows for one in row.groups]
    return {
        "topics": len(rows),
        "groups": len(groups),
        **{name: total(getattr(row.figures, name) for row in rows) for name in ("kept", "scheduled", "dead")},
        **{name: total(getattr(one, name) for one in groups) for name in ("pending", "in_flight", "waiting")},
        "oldest": max((row.oldest for row in rows), default=NOTHING) or None,
        "workers": sum(one.workers for one in groups),
    }


@dataclass(frozen=True)
class Overview:
    """One page of the overview.

    ``page``: its number, from 1 to ``pages``. ``totals``, ``bad`` and ``notes``: over all pages. ``at``: the time of
    the oldest count. ``unseen``: the number of topics without counts.
    """

    rows: list[TopicRow]
    page: int
    pages: int
    at: datetime | None
    bad: int
    notes: int
    totals: dict[str, Any]
    unseen: int = 0

    @property
    def has_dead_letters(self) -> bool:
        return bool(self.totals["dead"].value)


def late_after(topic: str) -> timedelta:
    return timedelta(seconds=conf.get("LATE_AFTER", topic))


@session.cached_queries()
def overview(page: int, find: str, sort: str) -> Overview:
    """Return a page of the topics whose names contain ``find``, with up to ``GROUPS_OF_A_TOPIC`` groups each.

    The order is computed over all topics, not over the page.
    """
    every = list(_all_topics(find))
    counted = _as_many_as_fit(every)
    are_few = len(counted) <= TOPICS_ON_THE_OVERVIEW
    rows = ordered(_rows(counted, COUNTED if are_few else SURVEYED), sort)
    pages = max(1, -(-len(rows) // TOPICS_ON_THE_OVERVIEW))
    page = min(page, pages)
    here = slice((page - 1) * TOPICS_ON_THE_OVERVIEW, page * TOPICS_ON_THE_OVERVIEW)
    if not are_few:  # Count the topics on the page again, with fresher numbers.
        fresh = {row.known.topic: row for row in _rows([row.known for row in rows[here]], COUNTED)}
        rows[here] = [fresh[row.known.topic] for row in rows[here]]
    at = min((moment for row in rows for moment in row.counted_at), default=None)
    bad, notes = sum(row.bad for row in rows), sum(row.notes for row in rows)
    unseen = len(every) - len(counted)
    return Overview(_with_rates(rows[here]), page, pages, at, bad, notes, totals(rows), unseen)


def _all_topics(find: str) -> Iterator[KnownTopic]:
    """Yield the topics whose names contain ``find``, by name. It reads 1,000 at a time."""
    after: str | None = ""
    while after is not None:
        some = inspect.topics(after=after, containing=find, limit=1_000, max_age=KNOWN)
        yield from some.topics
        after = some.next


def _as_many_as_fit(topics: Sequence[KnownTopic]) -> list[KnownTopic]:
    """Return all topics, or the topics that look worst. Return at least one if there is any."""
    subjects = sum(1 + min(len(known.groups), GROUPS_OF_A_TOPIC) for known in topics)
    if subjects <= SUBJECTS_COUNTED:
        return list(topics)
    room = SUBJECTS_COUNTED
    found: list[KnownTopic] = []
    for known in triage.worst_first(conf.database(), topics):
        room -= 1 + min(len(known.groups), GROUPS_OF_A_TOPIC)
        if room < 0 and found:
            break
        found.append(known)
    return found


def _rows(topics: Sequence[KnownTopic], max_age: float) -> list[TopicRow]:
    """Return the topics with their groups, figures and alarms, but without rates."""
    names = [known.topic for known in topics]
    cut = {known.topic: known.groups[:GROUPS_OF_A_TOPIC] for known in topics}
    counted = inspect.group_figures(
        [(topic, group) for topic, groups in cut.items() for group in groups], max_age=max_age
    )
    figures = inspect.topic_figures(names, max_age=max_age)
    overdue = {name: over_retention(one) for name, one in figures.items()}
    blockers = _blockers([known.topic for known in topics if known.groups], overdue)
    rows = []
    for known in topics:
        name = known.topic
        groups = [group_row(counted[name, group]) for group in cut[name]]
        found = alarms.of_topic(known, figures[name], blockers.get(name), overdue[name])
        rows.append(TopicRow(known, figures[name], None, groups, found, len(known.groups) - len(groups)))
    return rows


def _with_rates(rows: Sequence[TopicRow]) -> list[TopicRow]:
    pairs = [(row.known.topic, one.figures.group) for row in rows for one in row.groups]
    wanted = [*((row.known.topic, None) for row in rows), *pairs]
    rates = inspect.rates(wanted, points=SPARK_POINTS, max_age=RATED)
    return [
        replace(
            row,
            rates=rates[row.known.topic, None],
            groups=[replace(one, rates=rates[row.known.topic, one.figures.group]) for one in row.groups],
        )
        for row in rows
    ]


def over_retention(figures: TopicFigures) -> timedelta:
    """Return how far a topic's oldest message is past its retention; negative if not yet due."""
    if figures.oldest_published_at is None:
        return timedelta()
    kept_for = timedelta(milliseconds=conf.retention_ms(figures.topic))
    return figures.at - figures.oldest_published_at - kept_for


def _blockers(topics: Sequence[str], overdue: Mapping[str, timedelta]) -> dict[str, list[Hold]]:
    """Return the retention blockers of the topics furthest past retention. Each topic costs several queries."""
    late = sorted((name for name in topics if overdue[name] > timedelta()), key=lambda name: -overdue[name])
    return {name: inspect.holds(name, max_age=HELD) for name in late[:BLOCKERS_READ]}


def group_row(figures: GroupFigures) -> GroupRow:
    return GroupRow(figures, None, alarms.of_group(figures, late_after(figures.topic)))


def recently(rates: Rates, series: Series) -> float:
    """Return the recent rate per minute of a series with steps of one minute. The last step may be unfinished."""
    last = series.values[-RECENT:]
    end = rates.start + len(series.values) * rates.step
    over = timedelta() if rates.at is None else max(end - rates.at, timedelta())
    return sum(last) / max(len(last) - over / timedelta(minutes=1), 1)


@session.cached_queries()
def topics(after: str, find: str) -> tuple[list[TopicRow], str | None]:
    """Return a page of the list of topics, without the figures of their groups."""
    found = inspect.topics(after=after, containing=find, limit=TOPICS_ON_A_PAGE, max_age=KNOWN)
    figures = inspect.topic_figures([known.topic for known in found.topics], max_age=COUNTED)
    rows = [
        TopicRow(known, figures[known.topic], None, [], alarms.of_topic(known, figures[known.topic], []))
        for known in found.topics
    ]
    return rows, found.next


@session.cached_queries()
def groups(after: tuple[str, str], find: str, topic: str) -> tuple[list[GroupRow], tuple[str, str] | None]:
    """Return a page of the list of groups, by topic and name.

    ``find`` and ``topic``: texts that the names of group and topic must contain.
    """
    pairs = ((known.topic, group) for known in _all_topics(topic) for group in known.groups)
    page = list(islice((pair for pair in pairs if pair > after and find in pair[1]), TOPICS_ON_A_PAGE + 1))
    shown = page[:TOPICS_ON_A_PAGE]
    counted = inspect.group_figures(shown, max_age=COUNTED)
    return [group_row(counted[pair]) for pair in shown], shown[-1] if len(page) > len(shown) else None
