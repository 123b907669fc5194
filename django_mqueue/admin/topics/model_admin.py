"""Topics: their list, and the page of one topic."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _

from ... import conf, inspect
from ...stats import alarms, topic_list
from ...stats.summaries import group_row
from ...store.connection import session
from ..base import row_ids
from ..base.display import printable
from ..base.forms import TopicForm
from ..base.tables import ReadOnlyAdmin
from ..base.urls import NAVIGATION, page_url
from ..base.views import QueueView
from . import actions, charts, status
from .actions import ActionsPage
from .overview import EVERY, NAME_MAX, OverviewPage
from .pausing import PauseTopic, ResumeTopic
from .tools import topic_tools

GROUPS_SHOWN = 50


class TopicPage(QueueView):
    """One topic: ``?topic=``, and optionally ``span=hour`` or ``span=day``."""

    route, url_name = "page", "topic"
    template_name = "admin/django_mqueue/topic.html"
    refresh_seconds, frame = EVERY, "admin/django_mqueue/figures_page.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        form = TopicForm(self.request.GET)
        if not form.is_valid():
            raise Http404(_("This page needs a topic."))
        topic = form.cleaned_data["topic"]
        self.title = printable(topic)
        tools = topic_tools(self.request, topic)
        return super().get_context_data(tools=tools, **kwargs, **self.found(topic))

    @session.cached_queries()
    def found(self, topic: str) -> dict[str, Any]:
        span = charts.span_of(self.request.GET.get("span"))
        about = topic_list.topic(conf.database(), topic)
        pairs = [(topic, group) for group in about.groups[:GROUPS_SHOWN]]
        max_age = status.COUNTS_MAX_AGE if self.is_fragment else 0
        figures = inspect.group_figures(pairs, max_age=max_age)
        topic_figures = inspect.topic_figures([topic], max_age=max_age)[topic]
        rates = inspect.rates(
            [(topic, None), *pairs], span=span.span, points=span.points, max_age=status.RATES_MAX_AGE
        )
        blockers = inspect.holds(topic, max_age=status.COUNTS_MAX_AGE)
        return {
            "topic": topic,
            "known": about,
            "figures": topic_figures,
            "groups": [group_row(figures[pair]) for pair in pairs],
            "groups_left_out": len(about.groups) - len(pairs),
            "alarms": alarms.of_topic(about, topic_figures, []),
            "holds": [(one, alarm) for one in blockers if (alarm := alarms.of_blocker(one))],
            "retention": timedelta(seconds=conf.get("RETENTION", topic)),
            "charts": [charts.throughput(rates[topic, None], charts.busiest(rates))],
            "span": span,
            "spans": charts.SPANS.values(),
            "actions": actions.newest(self.request, topic),
        }


class TopicList(QueueView):
    """The list of all topics by name, a page at a time, filtered by a part of the name.

    ``?derived=1``: also topics of dead letters and other derived topics that have groups.
    """

    url_name = "topic_changelist"
    template_name = "admin/django_mqueue/topic_list.html"
    title = NAVIGATION["topic_changelist"]
    is_top_level = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        after, find = (self.request.GET.get(name, "")[:NAME_MAX] for name in ("after", "find"))
        derived = bool(self.request.GET.get("derived"))
        rows, following = status.topics(after, find.strip(), derived)
        found = {"rows": rows, "next": following, "after": after, "find": find.strip(), "derived": derived}
        return super().get_context_data(**found, **kwargs)


class TopicAdmin(ReadOnlyAdmin):
    views = (TopicPage, OverviewPage, ActionsPage, PauseTopic, ResumeTopic)
    list_view = TopicList  # A topic may exist without a row in Django's list.

    def row_url(self, request: HttpRequest, object_id: str) -> str | None:
        key = row_ids.decode(object_id, str)
        return page_url(request, "topic", topic=key[0]) if key else None
