"""Find work items by indexes: by state, user, age, due date, kind, object, message and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.db import models

from .. import conf
from ..policy.durations import moment, to_ms
from ..store.queries.group_rows import NOW, now_ms
from .intake import checked_attributes
from .models import WorkAttribute, WorkItem
from .registry import worklist_of, worklists
from .rights import visible
from .states import BUILT_IN, WorklistError


def find(
    worklist: str | None = None,
    *,
    state: str | Sequence[str] | None = None,
    open: bool | None = None,
    assignee: Any = None,
    team: Any = None,
    kind: str | None = None,
    overdue: bool = False,
    due_before: datetime | None = None,
    older_than: float | timedelta | None = None,
    linked: models.Model | None = None,
    message_id: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    using: str | None = None,
) -> models.QuerySet[WorkItem]:
    """Return the items that match all arguments, as a queryset, so that the caller can order, count and slice them.

    - ``worklist``: its name. Needed unless ``assignee``, ``team``, ``linked`` or ``message_id`` is given: an index
      begins with each of these.
    - ``state``: one state, or several. ``open``: True for items that have not ended, False for the others.
    - ``assignee``: a user. ``team``: a group of users.
    - ``overdue``: open items whose due date has passed. ``due_before``: open items that are due before this time.
    - ``older_than``: seconds (or a ``timedelta``) since the item was made, by the database's clock.
    - ``linked``: the model instance that the items are about. ``message_id``: the id of their message.
    - ``attributes``: values of declared attributes. Needs ``worklist``.

    Raises ``WorklistError`` for an undeclared worklist or state. Raises ``ValueError`` for an undeclared attribute, and
    if no index serves the arguments.
    """
    alias = conf.database(using)
    found = WorkItem.objects.using(alias)
    if worklist is None and assignee is None and team is None and linked is None and message_id is None:
        raise ValueError(
            "give worklist, assignee, team, linked or message_id: no index serves a search without one of them"
        )
    if worklist is not None:
        found = found.filter(worklist=worklist_of(worklist).name)
    if state is not None:
        states = [state] if isinstance(state, str) else list(state)
        _check(worklist, states)
        found = found.filter(state__in=states)
    if overdue or due_before is not None:
        if open is False:
            raise ValueError("overdue and due_before find open items: leave out open=False")
        open = True
    if open is not None:
        found = found.filter(is_open=open)
    if overdue:
        found = found.filter(due_at__lt=moment(now_ms(alias)))
    if due_before is not None:
        found = found.filter(due_at__lt=due_before)
    if older_than is not None:
        found = found.filter(created_at__lte=moment(now_ms(alias) - to_ms("older_than", older_than)))
    equal = {"assignee": assignee, "team": team, "kind": kind, "message_id": message_id}
    found = found.filter(**{name: value for name, value in equal.items() if value is not None})
    if linked is not None:
        type_ = ContentType.objects.db_manager(alias).get_for_model(linked)
        found = found.filter(linked_type=type_, linked_id=str(linked.pk))
    return found if attributes is None else _with_attributes(found, worklist, attributes, alias)


def visible_to(user: Any) -> models.QuerySet[WorkItem]:
    """Return the items of the worklists that the user may view, with the database's time as ``now_ms``.

    Large columns are read on access only.
    """
    names = [worklist.name for worklist in visible(user)]
    rows = WorkItem.objects.using(conf.database()).filter(worklist__in=names)
    found: models.QuerySet[WorkItem] = rows.select_related("assignee", "team").annotate(now_ms=NOW)
    return found.defer("payload", "headers", "result", "error")


def first_due(items: models.QuerySet[WorkItem], limit: int) -> list[int]:
    """Return the keys of the first items by due date; items without one come last. It reads two index ranges."""
    ordered = items.order_by("due_at", "pk").values_list("pk", flat=True)
    dated = list(ordered.filter(due_at__isnull=False)[:limit])
    return dated + list(ordered.filter(due_at__isnull=True)[: limit - len(dated)])


def _with_attributes(
    found: models.QuerySet[WorkItem], worklist: str | None, attributes: Mapping[str, Any], alias: str
) -> models.QuerySet[WorkItem]:
    if worklist is None:
        raise ValueError("attributes need worklist: each worklist declares its own")
    for name, value in checked_attributes(worklist_of(worklist), attributes).items():
        rows = WorkAttribute.objects.using(alias).filter(worklist=worklist, name=name, value=value)
        found = found.filter(pk__in=rows.values("item"))
    return found


def _check(worklist: str | None, states: Sequence[str]) -> None:
    """Raise ``WorklistError`` for a state that the worklist, or if it is None any worklist, does not have."""
    searched = worklists() if worklist is None else [worklist_of(worklist)]
    known = dict.fromkeys((*BUILT_IN, *(state for each in searched for state in each.options.states)))
    for state in states:
        if state not in known:
            where = "no worklist has the" if worklist is None else f"worklist {worklist!r} has no"
            raise WorklistError(f"{where} state {state!r}; the states are {', '.join(known)}")
