"""Filters of the list of items: one worklist, and a view of it. Each view is a range of an index."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from ...admin.base.display import Text
from ...policy.durations import moment
from ...store.queries.group_rows import now_ms
from .. import states
from ..models import WorkItem
from ..rights import visible
from .display import state_text

MINE, TEAM, OPEN, OVERDUE = states.VIEWS
VIEWS: dict[str, Text] = {
    MINE: _("My items"),
    states.UNASSIGNED: _("Unassigned"),
    TEAM: _("Items of my teams"),
    OPEN: _("All open items"),
    OVERDUE: _("Overdue"),
}
NEWEST_END = ("-ended_at", "-kind", "-is_automated", "-created_at", "-pk")
"""The columns of the index. Another order after ``ended_at`` would sort all items that have ended."""


class _RequiredFilter(admin.SimpleListFilter):
    """A filter that always has a value: there is no choice "All"."""

    def value(self) -> str:
        names = [name for name, _text in self.lookup_choices]
        given = super().value()
        return given if given in names else (names[0] if names else "")

    def has_output(self) -> bool:
        return len(self.lookup_choices) > 1

    def choices(self, changelist: Any) -> Any:
        for name, text in self.lookup_choices:
            query = changelist.get_query_string({self.parameter_name: name}, ["p"])
            yield {"selected": self.value() == name, "query_string": query, "display": text}


class WorklistFilter(_RequiredFilter):
    title = _("worklist")
    parameter_name = "worklist"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(worklist.name, worklist.name) for worklist in visible(request.user)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[WorkItem]) -> QuerySet[WorkItem]:
        return queryset.filter(worklist=self.value())


class ViewFilter(_RequiredFilter):
    """The views of a worklist. Each view selects items, and has an order."""

    title = _("items")
    parameter_name = "view"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Text]]:
        declared = {name for worklist in visible(request.user) for name in worklist.options.states}
        names = (states.DELAYED, states.AUTOMATED, *sorted(declared), *states.ENDED)
        return [*VIEWS.items(), *((name, capfirst(state_text(name))) for name in names)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[WorkItem]) -> QuerySet[WorkItem]:
        chosen = self.value()
        if chosen in states.ENDED:
            return queryset.filter(state=chosen).order_by(*NEWEST_END)
        ordered = queryset.order_by("due_at", "pk")
        if chosen == MINE:
            return ordered.filter(assignee=request.user.pk, is_open=True)
        if chosen == TEAM:
            groups = getattr(request.user, "groups", None)  # A custom user model may have none.
            teams = [] if groups is None else list(groups.values_list("pk", flat=True))
            return ordered.filter(team__in=teams, is_open=True)
        if chosen == OPEN:
            return ordered.filter(is_open=True)
        if chosen == OVERDUE:
            return ordered.filter(is_open=True, due_at__lt=moment(now_ms(queryset.db)))
        return ordered.filter(state=chosen)
