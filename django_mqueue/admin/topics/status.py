"""Rows for the overview and for the lists of topics and groups: one page at a time, in few queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from ... import conf, inspect
from ...inspect import KnownTopic
from ...stats import alarms, triage
from ...stats.alarms import ZERO
from ...stats.results import total
from ...stats.summaries import Ages, GroupRow, TopicRow, group_row, topic_rows, with_rates
from ...store.connection import session

TOPICS_ON_A_PAGE = 25
TOPICS_ON_THE_OVERVIEW = 5
"""Few, because the rates of each topic cost about ten queries: they read published and finished messages."""
SUBJECTS_COUNTED = 200
"""Maximum number of topics and groups together that the overview counts: the limit of ``inspect`` for one call."""
GROUPS_OF_A_TOPIC = 30

COUNTS_MAX_AGE, SURVEY_MAX_AGE, RATES_MAX_AGE, BLOCKERS_MAX_AGE, TOPICS_MAX_AGE = 5.0, 30.0, 30.0, 30.0, 15.0
"""Seconds for which results are cached, so that many viewers cause one query. ``SURVEY_MAX_AGE`` applies to the counts
by which all topics are sorted."""
FRESH = Ages(COUNTS_MAX_AGE, RATES_MAX_AGE, BLOCKERS_MAX_AGE)
SURVEY = Ages(SURVEY_MAX_AGE, RATES_MAX_AGE, BLOCKERS_MAX_AGE)

WORST = "worst"
SORTS: dict[str, Callable[[TopicRow], Any]] = {
    WORST: lambda row: (row.alarm_count, row.figures.dead.value, row.oldest),
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
        "oldest": max((row.oldest for row in rows), default=ZERO) or None,
        "workers": sum(one.workers for one in groups),
    }


@dataclass(frozen=True)
class Overview:
    """One page of the overview.

    ``page``: its number, from 1 to ``pages``. ``totals``, ``alarm_count`` and ``note_count``: over all pages.
    ``at``: the time of the oldest count. ``topics_left_out``: the number of topics without counts.
    """

    rows: list[TopicRow]
    page: int
    pages: int
    at: datetime | None
    alarm_count: int
    note_count: int
    totals: dict[str, Any]
    topics_left_out: int = 0

    @property
    def has_dead_letters(self) -> bool:
        return bool(self.totals["dead"].value)


@session.cached_queries()
def overview(page: int, find: str, sort: str) -> Overview:
    """Return a page of the topics whose names contain ``find``, with up to ``GROUPS_OF_A_TOPIC`` groups each.

    The order is computed over all topics, not over the page.
    """
    every = list(_all_topics(find))
    counted = _as_many_as_fit(every)
    are_few = len(counted) <= TOPICS_ON_THE_OVERVIEW
    rows = ordered(topic_rows(counted, FRESH if are_few else SURVEY, groups_max=GROUPS_OF_A_TOPIC), sort)
    pages = max(1, -(-len(rows) // TOPICS_ON_THE_OVERVIEW))
    page = min(page, pages)
    here = slice((page - 1) * TOPICS_ON_THE_OVERVIEW, page * TOPICS_ON_THE_OVERVIEW)
    if not are_few:  # Count the topics on the page again, with fresher numbers.
        known = [row.known for row in rows[here]]
        fresh = {row.known.topic: row for row in topic_rows(known, FRESH, groups_max=GROUPS_OF_A_TOPIC)}
        rows[here] = [fresh[one.topic] for one in known]
    at = min((moment for row in rows for moment in row.counted_at), default=None)
    sums = sum(row.alarm_count for row in rows), sum(row.note_count for row in rows), totals(rows)
    return Overview(with_rates(rows[here], FRESH), page, pages, at, *sums, len(every) - len(counted))


def _all_topics(find: str) -> Iterator[KnownTopic]:
    """Yield the topics whose names contain ``find``, by name. It reads 1,000 at a time."""
    after: str | None = ""
    while after is not None:
        some = inspect.topics(after=after, containing=find, limit=1_000, max_age=TOPICS_MAX_AGE)
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


@session.cached_queries()
def topics(after: str, find: str, with_derived: bool) -> tuple[list[TopicRow], str | None]:
    """Return a page of the list of topics, without the figures of their groups.

    ``with_derived``: also return topics of dead letters and other derived topics that have groups.
    """
    wanted = (
        known
        for known in _all_topics(find)
        if known.topic > after and (with_derived or not conf.is_derived(known.topic))
    )
    page = list(islice(wanted, TOPICS_ON_A_PAGE + 1))
    shown = page[:TOPICS_ON_A_PAGE]
    figures = inspect.topic_figures([known.topic for known in shown], max_age=COUNTS_MAX_AGE)
    rows = [
        TopicRow(known, figures[known.topic], None, [], alarms.of_topic(known, figures[known.topic], []))
        for known in shown
    ]
    return rows, shown[-1].topic if len(page) > len(shown) else None


@session.cached_queries()
def groups(after: tuple[str, str], find: str, topic: str) -> tuple[list[GroupRow], tuple[str, str] | None]:
    """Return a page of the list of groups, by topic and name.

    ``find`` and ``topic``: texts that the names of group and topic must contain.
    """
    pairs = ((known.topic, group) for known in _all_topics(topic) for group in known.groups)
    page = list(islice((pair for pair in pairs if pair > after and find in pair[1]), TOPICS_ON_A_PAGE + 1))
    shown = page[:TOPICS_ON_A_PAGE]
    counted = inspect.group_figures(shown, max_age=COUNTS_MAX_AGE)
    return [group_row(counted[pair]) for pair in shown], shown[-1] if len(page) > len(shown) else None
