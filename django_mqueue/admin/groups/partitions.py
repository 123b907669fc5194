"""The page of a group's partitions: the position in each, its owner, and since when it has this owner."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest

from ... import conf
from ...exceptions import MQueueError
from ...policy import names
from ...stats.groups import group_progress
from ..base import subjects
from ..base.display import printable
from ..base.links import address
from ..base.subjects import NameField
from ..base.views import QueueView, may
from .releasing import PartitionField

PER_PAGE = 50


class OfPartitions(subjects.OfGroup):
    key = PartitionField(required=False, label="Key")
    subscriber = NameField("subscriber", names.SUBSCRIBER_MAX, required=False, label="Held by")
    after = forms.CharField(required=False, strip=False, widget=forms.HiddenInput)


class GroupView(QueueView):
    """A page about one group: ``?topic=&group=``."""

    def crumbs(self) -> list[tuple[str, str | None]]:
        topic, group = (self.request.GET.get(name, "") for name in ("topic", "group"))
        above = super().crumbs()[:2]  # Home, the overview.
        if may(self.request, "view_consumergroup"):
            above += [
                ("Groups", address(self.request, "consumergroup_changelist")),
                (f"{group} on {topic}", address(self.request, "group", topic=topic, group=group)),
            ]
        return [*above, (str(self.title), None)]


class PartitionsPage(GroupView):
    """The partitions of a group: ``?topic=&group=``, and optionally ``&key=``, ``&subscriber=``, ``&after=``."""

    route, url_name, rights = "partitions", "group_partitions", ("view_offset", "view_partitionlease")
    template_name = "admin/django_mqueue/partitions.html"
    title = "Partitions"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        form = OfPartitions(self.request.GET)
        context = super().get_context_data(form=form, **kwargs)
        if not form.is_valid():
            return {**context, "problem": "This page needs a topic and a group."}
        asked = form.cleaned_data
        of = {"topic": asked["topic"], "group": asked["group"]}
        try:
            found = group_progress.partitions(
                **of, partition=asked["key"] or None, subscriber=asked["subscriber"] or None, after=asked["after"],
                limit=PER_PAGE, using=conf.database(),
            )  # fmt: skip
        except (MQueueError, ValueError) as problem:
            return {**context, **of, "problem": printable(str(problem))}
        query = {**of, "key": asked["key"] or None, "subscriber": asked["subscriber"] or None}
        return {
            **context,
            **of,
            "found": found,
            "narrowed": bool(asked["key"] or asked["subscriber"]),
            "first": address(self.request, self.url_name, **query) if asked["after"] else "",
            "further": address(self.request, self.url_name, **query, after=found.next) if found.next else "",
        }

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        context = self.get_context_data(title=self.title)
        return self.render_to_response(context, status=404 if "problem" in context else 200)
