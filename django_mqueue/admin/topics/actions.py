"""The actions of operators, newest first: the page of all actions, and the newest ones of a topic or a group.

An operation in the admin has an entry in Django's log of admin actions, with its result in words. An action from Python
or the command line has only its record (``service.actions``). The page of all actions shows both, each action once: it
leaves out the records of the admin's operations. The pages of topics and groups show the records alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from typing import Any

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.contenttypes.models import ContentType
from django.db.models import Q
from django.http import HttpRequest
from django.urls import NoReverseMatch
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from ...service import actions
from ...service.actions import Action
from ..base import row_ids
from ..base.display import Text, done_by, printable
from ..base.forms import parse_number
from ..base.operations import group_title, with_reason
from ..base.urls import APP, NAVIGATION, allowed_url, may, may_open, page_url
from ..base.views import QueueView

PAGE = 50
READS = 10
"""Maximum number of reads for one page, of ``actions.READ`` records each. The page leaves out the admin's own."""
NEWEST = 5
"""The number of actions on the page of a topic or a group."""
DONE = {
    "publish": gettext_lazy("Messages published"),
    "subscribe": gettext_lazy("Subscribed"),
    "unsubscribe": gettext_lazy("Unsubscribed"),
    "pause": gettext_lazy("Paused"),
    "resume": gettext_lazy("Resumed"),
    "reset": gettext_lazy("Reset to another position"),
    "release": gettext_lazy("Leases released"),
    "remove": gettext_lazy("Messages removed"),
    "send_to_front": gettext_lazy("Messages delivered now"),
    "delay": gettext_lazy("Messages delayed"),
    "hold": gettext_lazy("Messages held"),
    "unhold": gettext_lazy("Held messages delivered"),
    "redeliver": gettext_lazy("Messages redelivered"),
    "erase": gettext_lazy("Messages erased"),
    "cancel": gettext_lazy("Scheduled message cancelled"),
    "reschedule": gettext_lazy("Scheduled message rescheduled"),
    "redrive": gettext_lazy("Dead letters redriven"),
    "purge": gettext_lazy("Dead letters purged"),
}
"""The texts of recorded actions. An action without a text is shown by its name."""


@dataclass(frozen=True)
class Row:
    """A row of the page. ``pk``: of an entry of the log; ``offset``: of a record."""

    at: datetime
    user: str
    subject: str
    url: str | None
    text: str
    pk: int | None = None
    offset: int | None = None


class ActionsPage(QueueView):
    """All actions, or with ``?model=&object=`` the actions on one topic, group, message or dead letter.

    ``before`` and ``below``: list only entries with a smaller primary key, and records with a smaller offset.
    """

    route, url_name = "actions", "actions"
    template_name = "admin/django_mqueue/actions.html"
    title = NAVIGATION["actions"]
    is_top_level = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        query = self.request.GET
        before, below = (parse_number(query.get(name, "")) for name in ("before", "below"))
        model, object_id = query.get("model"), query.get("object")
        is_part = bool(model or object_id) or before is not None or below is not None
        recorded, unread = records(self.request, model, object_id, below)
        logged = entries(self.request, model, object_id, before)
        # ``merge`` keeps the order of each list, so that the next page continues correctly even if clocks differ.
        found = list(merge(logged, recorded, key=lambda row: row.at, reverse=True))
        rows, older = found[:PAGE], {}
        if len(found) > PAGE or unread is not None:
            below = below if recorded else unread
            older = {
                "model": model or None,
                "object": object_id or None,
                "before": min((row.pk for row in rows if row.pk is not None), default=before),
                "below": min((row.offset for row in rows if row.offset is not None), default=below),
            }
        return super().get_context_data(
            rows=rows,
            more=page_url(self.request, self.url_name, **older) if older else None,
            all=page_url(self.request, self.url_name) if is_part else None,
            **kwargs,
        )


def entries(
    request: HttpRequest, model: str | None, object_id: str | None, before: int | None
) -> Iterator[Row]:
    """Yield the newest entries of Django's log, one more than a page holds.

    It runs one query per model, so that each query can use the index on the content type.
    """
    wanted = Q() if before is None else Q(pk__lt=before)
    if object_id:
        wanted &= Q(object_id=object_id)
    models = [one for one in apps.get_app_config(APP).get_models() if model in (None, one.__name__.lower())]
    types = ContentType.objects.get_for_models(*models, for_concrete_models=False)
    found: list[LogEntry] = []
    for kind in types.values():
        chosen = LogEntry.objects.filter(wanted, content_type=kind).select_related("user")
        found += chosen.order_by("-pk")[: PAGE + 1]
    for entry in sorted(found, key=lambda entry: -entry.pk)[: PAGE + 1]:
        at = entry.action_time
        at = at if timezone.is_aware(at) else timezone.make_aware(at)
        url, text = _url(request, entry), entry.get_change_message()
        yield Row(at, str(entry.user), entry.object_repr, url, text, pk=entry.pk)


def records(
    request: HttpRequest, model: str | None, object_id: str | None, below: int | None
) -> tuple[list[Row], int | None]:
    """Return the newest records of actions from Python and the command line, one more than a page holds.

    Also return the offset below which records were not read, if the limit ``READS`` was reached; otherwise None.
    """
    topic = group = None
    if object_id:
        key: tuple[str, ...] | None = None
        if model == "topic":
            key = row_ids.decode(object_id, str)
        elif model == "consumergroup":
            key = row_ids.decode(object_id, str, str)
        if key is None:
            return [], None
        topic, group = (*key, None)[:2]
    elif model not in (None, "", "topic", "consumergroup"):
        return [], None
    rows: list[Row] = []
    for _number in range(READS):
        found = actions.page(topic, before=below)
        rows += [
            _row(request, offset, one)
            for offset, one in found
            if one.via != actions.ADMIN and (group is None or one.group in ("", group))
        ]
        if len(rows) > PAGE or len(found) < actions.READ:
            return rows[: PAGE + 1], None
        below = found[-1][0]
    return rows, below


def _row(request: HttpRequest, offset: int, one: Action) -> Row:
    name = group_title(one.topic, one.group) if one.group else one.topic
    page = "group" if one.group else "topic"
    url = allowed_url(request, page, topic=one.topic, group=one.group or None)
    return Row(one.at, one.by, name, url, text_of(one), offset=offset)


def text_of(action: Action) -> str:
    """Return the action with its details and its reason, for the page of all actions."""
    details = ", ".join(f"{name}: {value}" for name, value in action.details.items())
    text = f"{_done(action)} ({details})." if details else f"{_done(action)}."
    return with_reason(text, action.why)


def _done(action: Action) -> Text:
    return DONE.get(action.action, action.action)


def newest(request: HttpRequest, topic: str, group: str | None = None) -> list[tuple[SafeString, str]]:
    """Return (action, user and time; reason) of the newest actions on a topic or a group.

    Users who may not see the actions of operators get an empty list.
    """
    if not may_open(request, "actions"):
        return []
    found = actions.recent(topic, group, limit=NEWEST)
    return [
        (done_by(_done(one), one.group if group is None else "", one.by, one.at), printable(one.why))
        for one in found
    ]


def _url(request: HttpRequest, entry: LogEntry) -> str | None:
    model = entry.content_type.model if entry.content_type else ""
    if not entry.object_id or not may(request, f"view_{model}"):
        return None
    try:
        return page_url(request, f"{model}_change", quote(entry.object_id))
    except NoReverseMatch:
        return None
