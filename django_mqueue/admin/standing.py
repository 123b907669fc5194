"""What the overview and the lists of topics and groups show: asked for a page at a time, a few statements for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice

from .. import conf, inspect
from ..inspect import GroupFigures, Hold, KnownTopic, Rates, Series, TopicFigures
from ..store import session
from . import alarms
from .alarms import Alarm

TOPICS_ON_A_PAGE = 25
TOPICS_ON_THE_OVERVIEW = 5
"""Each costs about twenty statements: samples of what was published and finished, for rates and counts."""
LINES_ON_A_PAGE = 200
"""On the overview, of topics and groups together: as many as ``inspect`` answers at once."""
HOLDS_ASKED = 8
RECENT = 5
"""Minutes that "per minute" is the mean of."""
SPARK_POINTS = 60

COUNTED, RATED, HELD, KNOWN = 5.0, 30.0, 30.0, 15.0
"""Seconds for which answers are kept: what many look at together is asked once."""


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
    """Groups beyond those that a page can show."""

    @property
    def bad(self) -> int:
        told = [*self.alarms, *(alarm for row in self.groups for alarm in row.alarms)]
        return sum(alarm.is_bad for alarm in told)


@dataclass(frozen=True)
class Standing:
    """``next``: the name to go on behind; ``at``: when the oldest of the numbers was counted."""

    rows: list[TopicRow]
    next: str | None
    at: datetime | None
    bad: int = field(default=0)

    @property
    def has_dead_letters(self) -> bool:
        """Whether there are any on the page."""
        return any(
            row.figures.dead.value or any(one.figures.dead.value for one in row.groups) for row in self.rows
        )


def late_after(topic: str) -> timedelta:
    return timedelta(seconds=conf.get("LATE_AFTER", topic))


@session.one_look()
def overview(after: str, find: str) -> Standing:
    """The next topics behind a name, of those whose names contain a text, with all their groups."""
    found = inspect.topics(after=after, containing=find, limit=TOPICS_ON_THE_OVERVIEW, max_age=KNOWN)
    topics = list(_as_many_as_fit(found.topics))
    names = [known.topic for known in topics]
    cut = {known.topic: known.groups[: LINES_ON_A_PAGE - 1] for known in topics}
    pairs = [(topic, group) for topic, groups in cut.items() for group in groups]
    counted = inspect.group_figures(pairs, max_age=COUNTED)
    held = inspect.topic_figures(names, max_age=COUNTED)
    rates = inspect.rates([*((name, None) for name in names), *pairs], points=SPARK_POINTS, max_age=RATED)
    overdue = {name: over_retention(figures) for name, figures in held.items()}
    holds = _holds([known.topic for known in topics if known.groups], overdue)
    rows = []
    for known in topics:
        name = known.topic
        groups = [group_row(counted[name, group], rates.get((name, group))) for group in cut[name]]
        told = alarms.of_topic(known, held[name], holds.get(name), overdue[name])
        unseen = len(known.groups) - len(groups)
        rows.append(TopicRow(known, held[name], rates.get((name, None)), groups, told, unseen))
    more = found.next if len(topics) == len(found.topics) else names[-1]
    at = min([*(one.at for one in counted.values()), *(one.at for one in held.values())], default=None)
    return Standing(rows, more, at, sum(row.bad for row in rows))


def over_retention(figures: TopicFigures) -> timedelta:
    """By how much the oldest message of a topic is older than it is to become."""
    if figures.oldest_published_at is None:
        return timedelta()
    kept_for = timedelta(milliseconds=conf.retention_ms(figures.topic))
    return figures.at - figures.oldest_published_at - kept_for


def _holds(topics: Sequence[str], overdue: Mapping[str, timedelta]) -> dict[str, list[Hold]]:
    """Who holds back deletion of those that are furthest over their time; few, for it is asked topic by topic."""
    late = sorted((name for name in topics if overdue[name] > timedelta()), key=lambda name: -overdue[name])
    return {name: inspect.holds(name, max_age=HELD) for name in late[:HOLDS_ASKED]}


def group_row(figures: GroupFigures, rates: Rates | None = None) -> GroupRow:
    return GroupRow(figures, rates, alarms.of_group(figures, late_after(figures.topic)))


def _as_many_as_fit(topics: Sequence[KnownTopic]) -> Iterator[KnownTopic]:
    """At least one."""
    room = LINES_ON_A_PAGE
    for number, known in enumerate(topics):
        room -= 1 + len(known.groups)
        if room < 0 and number:
            return
        yield known


def recently(series: Series) -> float:
    """Per minute, of a series of minutes."""
    last = series.values[-RECENT:]
    return sum(last) / max(len(last), 1)


@session.one_look()
def topics(after: str, find: str) -> tuple[list[TopicRow], str | None]:
    """The list of topics: without what their groups do."""
    found = inspect.topics(after=after, containing=find, limit=TOPICS_ON_A_PAGE, max_age=KNOWN)
    held = inspect.topic_figures([known.topic for known in found.topics], max_age=COUNTED)
    rows = [
        TopicRow(known, held[known.topic], None, [], alarms.of_topic(known, held[known.topic], []))
        for known in found.topics
    ]
    return rows, found.next


@session.one_look()
def groups(after: tuple[str, str], find: str, topic: str) -> tuple[list[GroupRow], tuple[str, str] | None]:
    """The list of groups, by topic and name: those whose names, and whose topics' names, contain these texts."""
    page = list(
        islice(
            (pair for pair in _pairs(after[0], topic) if pair > after and find in pair[1]),
            TOPICS_ON_A_PAGE + 1,
        )
    )
    shown = page[:TOPICS_ON_A_PAGE]
    counted = inspect.group_figures(shown, max_age=COUNTED)
    return [group_row(counted[pair]) for pair in shown], shown[-1] if len(page) > len(shown) else None


def _pairs(first: str, containing: str) -> Iterator[tuple[str, str]]:
    """All pairs of topic and group in their order, from a topic on; the names of 1,000 topics at a time."""
    after: str | None = ""
    while after is not None:
        some = inspect.topics(after=after, containing=containing, limit=1_000, max_age=KNOWN)
        for known in some.topics:
            if known.topic >= first:
                yield from ((known.topic, group) for group in known.groups)
        after = some.next
