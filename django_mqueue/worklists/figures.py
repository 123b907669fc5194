"""Figures of a worklist: open items by state, overdue items, and what handlers and people have finished by week."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Avg, Count, F, FloatField, Min, Q, QuerySet
from django.db.models.expressions import Expression, ExpressionWrapper
from django.db.models.functions import Cast, Floor

from .. import conf
from ..policy.durations import moment
from ..store.queries.group_rows import now_ms
from .models import WorkItem
from .states import BUILT_IN, ENDED, FINISHED

COUNTED = 10_000
"""Items are counted exactly up to this number."""
WEEK_MS = 7 * 86_400_000
WEEKS = 8


@dataclass(frozen=True)
class OpenItems:
    """The open items of a worklist. A count of ``COUNTED`` means: at least as many. ``oldest``: when it was made."""

    by_state: dict[str, int]
    overdue: int
    oldest: datetime | None


@dataclass(frozen=True)
class Finished:
    """The items of one kind that were finished within a week. ``week``: its first day.

    ``by_handler``: how many a handler has finished. ``mean``: the mean time from the message to the end.
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


def open_items(worklist: str, states: list[str], *, using: str | None = None) -> OpenItems:
    """Return the open items of a worklist. ``states``: the states that it declares."""
    alias = conf.database(using)
    rows = WorkItem.objects.using(alias).filter(worklist=worklist)
    still_open = rows.filter(is_open=True)
    names = [name for name in (*BUILT_IN, *states) if name not in ENDED]
    return OpenItems(
        {name: _count(rows.filter(state=name)) for name in names},
        _count(still_open.filter(due_at__lt=moment(now_ms(alias)))),
        still_open.aggregate(oldest=Min("created_at"))["oldest"],
    )


def _count(rows: QuerySet[WorkItem]) -> int:
    return rows.order_by()[:COUNTED].count()


def finished(worklist: str, *, weeks: int = WEEKS, using: str | None = None) -> list[Finished]:
    """Return what was finished in the last weeks, newest week first, by kind. One statement, from an index."""
    alias = conf.database(using)
    # Weeks begin on Monday in UTC. 1970-01-01 was a Thursday.
    shift = 3 * 86_400_000
    now = now_ms(alias) + shift
    since = now - now % WEEK_MS - (weeks - 1) * WEEK_MS - shift
    ended = Cast(F("ended_at"), FloatField())
    week: Expression = Floor((ended + shift) / WEEK_MS, output_field=FloatField())
    took = ExpressionWrapper(ended - Cast(F("created_at"), FloatField()), output_field=FloatField())
    rows = (
        WorkItem.objects.using(alias)
        .filter(worklist=worklist, ended_at__gte=moment(since), state=FINISHED)
        .annotate(week=week)
        .values("week", "kind")
        .annotate(
            count=Count("pk"),
            automated=Count("pk", filter=Q(is_automated=True)),
            took=Avg(took),
        )
        .order_by("-week", "kind")
    )
    return [
        Finished(
            week=moment(int(row["week"]) * WEEK_MS - shift),
            kind=row["kind"],
            count=row["count"],
            by_handler=row["automated"],
            mean=timedelta(milliseconds=row["took"]),
        )
        for row in rows
    ]
