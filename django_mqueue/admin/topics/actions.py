"""The page of operators' actions, newest first: user, action and count."""

from __future__ import annotations

from typing import Any, ClassVar

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.contenttypes.models import ContentType
from django.db.models import Q
from django.http import HttpRequest
from django.urls import NoReverseMatch

from ..base.links import APP, address
from ..base.views import QueueView, may

PAGE = 50
BEFORE_MAX = 18
"""Maximum number of digits of ``before``."""


class ActionsPage(QueueView):
    """All actions, or with ``?model=&object=`` the actions on one topic, group, message or dead letter.

    ``before``: list only entries with a smaller primary key.
    """

    route, url_name = "actions", "actions"
    rights: ClassVar[tuple[str, ...]] = ("admin.view_logentry",)
    template_name = "admin/django_mqueue/actions.html"
    title = "Actions"
    crumb: ClassVar[tuple[str, str]] = ("Topics", "topic_changelist")

    def crumbs(self) -> list[tuple[str, str | None]]:
        *above, _, here = super().crumbs()
        return [*above, here]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        asked = self.request.GET
        before = asked.get("before", "")
        wanted = Q()
        if before.isascii() and before.isdigit() and len(before) <= BEFORE_MAX:
            wanted &= Q(pk__lt=int(before))
        of = {name: asked[name] for name in ("model", "object") if asked.get(name)}
        if "object" in of:
            wanted &= Q(object_id=of["object"])
        found = newest(wanted, of.get("model"))
        more = found[PAGE - 1].pk if len(found) > PAGE else None
        return super().get_context_data(
            rows=[(entry, _url(self.request, entry)) for entry in found[:PAGE]],
            more=more and address(self.request, "actions", **of, before=more),
            all=address(self.request, "actions") if of or before else None,
            **kwargs,
        )


def newest(wanted: Q, model: str | None) -> list[LogEntry]:
    """Return the newest entries, one more than a page holds.

    It runs one query per model, so that each query can use the index on the content type.
    """
    models = [one for one in apps.get_app_config(APP).get_models() if model in (None, one._meta.model_name)]
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
        return address(request, f"{model}_change", quote(entry.object_id))
    except NoReverseMatch:
        return None
