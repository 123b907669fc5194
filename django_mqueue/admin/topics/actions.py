"""The page of operators' actions, newest first: user, action and count."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.contenttypes.models import ContentType
from django.db.models import Q
from django.http import HttpRequest
from django.urls import NoReverseMatch

from ..base.forms import parse_offset
from ..base.urls import APP, NAVIGATION, may, page_url
from ..base.views import QueueView

PAGE = 50


class ActionsPage(QueueView):
    """All actions, or with ``?model=&object=`` the actions on one topic, group, message or dead letter.

    ``before``: list only entries with a smaller primary key.
    """

    route, url_name = "actions", "actions"
    template_name = "admin/django_mqueue/actions.html"
    title = NAVIGATION["actions"]
    is_list = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        query = self.request.GET
        before = parse_offset(query.get("before", ""))
        subject = {name: query[name] for name in ("model", "object") if query.get(name)}
        wanted = Q() if before is None else Q(pk__lt=before)
        if "object" in subject:
            wanted &= Q(object_id=subject["object"])
        found = newest(wanted, subject.get("model"))
        older = {**subject, "before": found[PAGE - 1].pk} if len(found) > PAGE else {}
        return super().get_context_data(
            rows=[(entry, _url(self.request, entry)) for entry in found[:PAGE]],
            more=page_url(self.request, self.url_name, **older) if older else None,
            all=page_url(self.request, self.url_name) if subject or before is not None else None,
            **kwargs,
        )


def newest(wanted: Q, model: str | None) -> list[LogEntry]:
    """Return the newest entries, one more than a page holds.

    It runs one query per model, so that each query can use the index on the content type.
    """
    models = [one for one in apps.get_app_config(APP).get_models() if model in (None, one.__name__.lower())]
    types = ContentType.objects.get_for_models(*models, for_concrete_models=False)
    found: list[LogEntry] = []
    for kind in types.values():
        entries = LogEntry.objects.filter(wanted, content_type=kind).select_related("user")
        found += entries.order_by("-pk")[: PAGE + 1]
    return sorted(found, key=lambda entry: -entry.pk)[: PAGE + 1]


def _url(request: HttpRequest, entry: LogEntry) -> str | None:
    model = entry.content_type.model if entry.content_type else ""
    if not entry.object_id or not may(request, f"view_{model}"):
        return None
    try:
        return page_url(request, f"{model}_change", quote(entry.object_id))
    except NoReverseMatch:
        return None
