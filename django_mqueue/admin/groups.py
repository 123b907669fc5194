"""Consumer groups: their list, and the page of one group of one topic."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from ..models import ConsumerGroup
from . import row_ids
from .links import address
from .lookups import GROUP, TOPIC_OF_GROUP
from .pages import ReadOnlyAdmin
from .pausing import PauseGroup, ResumeGroup
from .resetting import ResetGroup
from .views import QueueView


class GroupPage(QueueView):
    """One group of one topic: ``?topic=&group=``."""

    route, url_name, rights = "page", "group", ("view_consumergroup",)
    template_name = "admin/django_mqueue/group.html"
    crumb: ClassVar[tuple[str, str]] = ("Groups", "consumergroup_changelist")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        topic, group = (self.request.GET.get(name, "") for name in ("topic", "group"))
        self.title = f"{group} on {topic}"
        return super().get_context_data(topic=topic, group=group, **{**kwargs, "title": self.title})


class ConsumerGroupAdmin(ReadOnlyAdmin):
    order = ("consumer_group", "topic")
    lookups = (GROUP, TOPIC_OF_GROUP)
    list_display = ["consumer_group", "topic", "offset_acked", "paused", "updated_at"]
    views = (GroupPage, PauseGroup, ResumeGroup, ResetGroup)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ConsumerGroup]:
        queryset: QuerySet[ConsumerGroup] = super().get_queryset(request)
        return queryset.filter(consumer_group__gt="", partition_key="")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Links of Django's own, as in the log of actions, lead to the group's page."""
        key = row_ids.decode(object_id, str, str)
        if key is None:
            return HttpResponseRedirect(address(request, "consumergroup_changelist"))
        return HttpResponseRedirect(address(request, "group", topic=key[0], group=key[1]))
