"""Topics: their list, and the page of one."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from ..models import Topic
from . import row_ids
from .links import address
from .pages import ReadOnlyAdmin
from .pausing import PauseTopic, ResumeTopic
from .views import QueueView


class TopicPage(QueueView):
    """One topic: ``?topic=``."""

    route, url_name, rights = "page", "topic", ("view_topic",)
    template_name = "admin/django_mqueue/topic.html"
    crumb: ClassVar[tuple[str, str]] = ("Topics", "topic_changelist")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        self.title = self.request.GET.get("topic", "")
        return super().get_context_data(topic=self.title, **{**kwargs, "title": self.title})


class TopicAdmin(ReadOnlyAdmin):
    order = ("topic",)
    list_display = ["topic", "offset_acked", "updated_at"]
    views = (TopicPage, PauseTopic, ResumeTopic)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Topic]:
        queryset: QuerySet[Topic] = super().get_queryset(request)
        return queryset.filter(consumer_group="", topic__gt="", partition_key="")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Links of Django's own, as in the log of actions, lead to the topic's page."""
        key = row_ids.decode(object_id, str)
        page = ("topic_changelist", {}) if key is None else ("topic", {"topic": key[0]})
        return HttpResponseRedirect(address(request, page[0], **page[1]))
