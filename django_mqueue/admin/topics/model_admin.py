"""Topics: their list, and the page of one topic."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase

from ... import conf, inspect
from ...models import Topic
from ...stats import topic_list
from ...store.connection import session
from ..base import row_ids
from ..base.display import printable
from ..base.links import address
from ..base.pages import ReadOnlyAdmin
from ..base.subjects import OfTopic
from ..base.views import QueueView
from ..groups.pausing import PauseTopic, ResumeTopic
from . import alarms, charts, panels, status
from .actions import ActionsPage
from .overview import OverviewPage, asked
from .panels import Panel

GROUPS_SHOWN = 50


class TopicPage(QueueView):
    """One topic: ``?topic=``, and optionally ``span=hour`` or ``span=day``."""

    route, url_name, rights = "page", "topic", ("view_topic",)
    template_name = "admin/django_mqueue/topic.html"
    crumb: ClassVar[tuple[str, str]] = ("Topics", "topic_changelist")
    panels: ClassVar[tuple[Panel, ...]] = ()

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        form = OfTopic(self.request.GET)
        if not form.is_valid():
            raise Http404("no name of a topic")
        topic = form.cleaned_data["topic"]
        self.title = printable(topic)
        return super().get_context_data(**{**kwargs, "title": self.title, **self.found(topic)})

    @session.cached_queries()
    def found(self, topic: str) -> dict[str, Any]:
        span = charts.span_of(self.request.GET.get("span"))
        about = topic_list.topic(conf.database(), topic)
        shown = about.groups[:GROUPS_SHOWN]
        pairs = [(topic, group) for group in shown]
        figures = inspect.group_figures(pairs)
        held = inspect.topic_figures([topic])[topic]
        rates = inspect.rates(
            [(topic, None), *pairs], span=span.span, points=span.points, max_age=status.RATED
        )
        holds = inspect.holds(topic, max_age=status.COUNTED)
        return {
            "topic": topic,
            "known": about,
            "figures": held,
            "groups": [status.group_row(figures[pair], rates[pair]) for pair in pairs],
            "unseen": len(about.groups) - len(shown),
            "alarms": alarms.of_topic(about, held, []),
            "holds": [(hold, alarm) for hold in holds if (alarm := alarms.of_hold(hold))],
            "retention": conf.get("RETENTION", topic),
            "charts": [charts.throughput(rates[topic, None], charts.busiest(rates))],
            "span": span,
            "spans": charts.SPANS.values(),
            "panels": panels.panels(self.request, self.panels, topic=topic),
        }


class TopicList(QueueView):
    """The list of all topics by name, a page at a time, filtered by a part of the name."""

    route, url_name, rights = "list", "topic_list", ("view_topic",)
    template_name = "admin/django_mqueue/topic_list.html"
    title = "Topics"

    def crumbs(self) -> list[tuple[str, str | None]]:
        """Leave out the link to the list, because this page is the list."""
        *above, _, here = super().crumbs()
        return [*above, here]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        after, find = asked(self.request)
        rows, following = status.topics(after, find)
        return super().get_context_data(
            **{**kwargs, "rows": rows, "next": following, "after": after, "find": find}
        )


class TopicAdmin(ReadOnlyAdmin):
    order = ("topic",)
    list_display = ["topic", "offset_acked", "updated_at"]
    views = (TopicPage, OverviewPage, ActionsPage, PauseTopic, ResumeTopic)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Topic]:
        queryset: QuerySet[Topic] = super().get_queryset(request)
        return queryset.filter(consumer_group="", topic__gt="", partition_key="")

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponseBase:  # type: ignore[override]
        """Show the queue's own list: a topic may exist without a row in Django's list."""
        return TopicList.as_view(page=self)(request)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Redirect Django's own links, such as those in its log of actions, to the topic's page."""
        request.current_app = self.admin_site.name
        key = row_ids.decode(object_id, str)
        page = ("topic_changelist", {}) if key is None else ("topic", {"topic": key[0]})
        return HttpResponseRedirect(address(request, page[0], **page[1]))
