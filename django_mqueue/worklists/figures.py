"""Figures of a worklist: open items by state, overdue items, and what handlers and people have finished by week."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Min, QuerySet

from .. import conf
from ..policy.durations import moment
from ..store.connection import session
from ..store.queries.group_rows import now_ms
from .models import WorkItem
from .registry import worklist_of
from .searching import find
from .states import BUILT_IN, ENDED

COUNTED = 10_000
"""Items are counted exactly up to this number."""
WEEKS = 8
WEEK_MS = 7 * 86_400_000
MONDAY_MS = 3 * 86_400_000
"""Added to a time, so that weeks begin on Monday in UTC: 1970-01-01 was a Thursday."""


@dataclass(frozen=True)
class OpenItems:
    """The open items of a worklist.

    A count of ``COUNTED`` means: this many or more. ``oldest``: when the oldest one was made.
    """

    by_state: dict[str, int]
    overdue: int
    oldest: datetime | None


@dataclass(frozen=True)
class Finished:
    """The items of one kind that were finished within a week. ``week``: its first day.

    ``by_handler``: how many a handler has finished. ``mean``: the mean time from the creation of an item to its end.
    """

    week: datetime
    kind: str
    count: int
    by_handler: int
    mean: timedelta

    @property
    def share(self) -> float:
        """The share of items that a handler has finished, from 0 to 1."""
        return self.by_handler / self.count


def open_items(worklist: str, *, using: str | None = None) -> OpenItems:
    """Return the open items of a declared worklist."""
    alias = conf.database(using)
    rows = WorkItem.objects.using(alias).filter(worklist=worklist)
    names = [name for name in (*BUILT_IN, *worklist_of(worklist).options.states) if name not in ENDED]
    return OpenItems(
        {name: _count(rows.filter(state=name)) for name in names},
        overdue(worklist, using=alias),
        rows.filter(is_open=True).aggregate(oldest=Min("created_at"))["oldest"],
    )


def overdue(worklist: str, *, using: str | None = None) -> int:
    """Return the number of open items whose due date has passed, up to ``COUNTED``."""
    return _count(find(worklist, overdue=True, using=using))


def _count(rows: QuerySet[WorkItem]) -> int:
    return rows.order_by()[:COUNTED].count()


def finished(worklist: str, *, weeks: int = WEEKS, using: str | None = None) -> list[Finished]:
    """Return what was finished in this week and the weeks before it, ``weeks`` in all, by week and kind.

    The newest week comes first. Weeks begin on Monday in UTC.
    The query reads the index only. Without the hint, MySQL would read all items of the worklist.
    """
    alias = conf.database(using)
    this_week = (now_ms(alias) + MONDAY_MS) // WEEK_MS
    rows = session.fetch(
        alias,
        f"SELECT FLOOR((ended_at + {MONDAY_MS}) / {WEEK_MS}) AS week, kind, COUNT(*), SUM(is_automated),"
        " AVG(ended_at - created_at) FROM worklist_items FORCE INDEX (worklist_items_ended)"
        " WHERE worklist = %s AND state = 'finished' AND ended_at >= %s"
        " GROUP BY week, kind ORDER BY week DESC, kind",
        [worklist, _begin_ms(this_week - weeks + 1)],
    )
    return [
        Finished(
            moment(_begin_ms(int(week))), kind, count, int(by_handler), timedelta(milliseconds=float(mean))
        )
        for week, kind, count, by_handler, mean in rows
    ]


def _begin_ms(week: int) -> int:
    return week * WEEK_MS - MONDAY_MS
