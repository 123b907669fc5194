"""Consumer groups: their list, and the page of one group of one topic."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase

from ... import conf, inspect
from ...inspect import GroupFigures, PartitionLag
from ...models import ConsumerGroup
from ...store.connection import session
from ..base import row_ids
from ..base.display import printable
from ..base.links import address
from ..base.pages import ReadOnlyAdmin
from ..base.subjects import OfGroup
from ..base.views import QueueView
from ..topics import alarms, charts, panels, status
from ..topics.overview import QUERY_MAX, asked
from ..topics.panels import Panel
from .pausing import PauseGroup, ResumeGroup
from .resetting import ResetGroup
from .subscribers import members

PARTITIONS_SHOWN = 25


class GroupPage(QueueView):
    """One group of one topic: ``?topic=&group=``, and optionally ``span=hour`` or ``span=day``."""

    route, url_name, rights = "page", "group", ("view_consumergroup",)
    template_name = "admin/django_mqueue/group.html"
    crumb: ClassVar[tuple[str, str]] = ("Groups", "consumergroup_changelist")
    panels: ClassVar[tuple[Panel, ...]] = (
        Panel(
            "subscribers",
            "Subscribers",
            "admin/django_mqueue/members.html",
            ("view_subscriberheartbeat",),
            lambda request, topic, group: members(topic, group),
        ),
    )
    """Additional parts at the end of the page. Other modules can add panels here."""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        form = OfGroup(self.request.GET)
        if not form.is_valid():
            raise Http404("no names of a topic and a group")
        topic, group = form.cleaned_data["topic"], form.cleaned_data["group"]
        self.title = printable(f"{group} on {topic}")
        return super().get_context_data(**{**kwargs, "title": self.title, **self.found(topic, group)})

    @session.cached_queries()
    def found(self, topic: str, group: str) -> dict[str, Any]:
        pair = (topic, group)
        span = charts.span_of(self.request.GET.get("span"))
        figures = inspect.group_figures([pair])[pair]
        names = {"topic": topic, "group": group}
        found = {
            **names,
            "figures": figures,
            "alarms": alarms.of_group(figures, status.late_after(topic)),
            "span": span,
            "spans": charts.SPANS.values(),
        }
        if not figures.registered or figures.removing:
            return found
        kept = status.COUNTED  # The lag chart combines rates and lag: both need the same moment.
        rates = inspect.rates([pair], span=span.span, points=span.points, max_age=kept)[pair]
        latency = inspect.latency(topic, group, span=span.span, points=span.coarse, max_age=kept)
        lag = inspect.lag(*pair, limit=PARTITIONS_SHOWN, max_age=kept)
        holds = [one for one in inspect.holds(topic, max_age=status.COUNTED) if one.group == group]
        return {
            **found,
            "lag": lag,
            "partitions": [(one, self.is_silent(one, figures)) for one in lag.partitions],
            "rates": rates,
            "percentiles": charts.percentiles(latency.whole.done),
            "measured": latency.whole.done.of if latency.whole.done else 0,
            "holds": [(hold, alarm) for hold in holds if (alarm := alarms.of_hold(hold))],
            "charts": [
                charts.throughput(rates),
                charts.times(latency),
                charts.lag_over_time(lag, rates),
            ],
            "panels": panels.panels(self.request, self.panels, **names),
        }

    @staticmethod
    def is_silent(partition: PartitionLag, figures: GroupFigures) -> bool:
        """Return whether the owner has not renewed the lease in time. Another worker may then take the lease."""
        renewed = partition.owner_renewed_at
        return renewed is not None and figures.at - renewed > timedelta(
            milliseconds=conf.lease_ms(figures.topic)
        )


class GroupList(QueueView):
    """The list of all groups, a page at a time, filtered by parts of the group's and the topic's name."""

    route, url_name, rights = "list", "group_list", ("view_consumergroup",)
    template_name = "admin/django_mqueue/group_list.html"
    title = "Groups"

    def crumbs(self) -> list[tuple[str, str | None]]:
        """Leave out the link to the list, because this page is the list."""
        *above, _, here = super().crumbs()
        return [*above, here]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        (after, find), of = asked(self.request), self.request.GET
        behind, topic = of.get("behind", "")[:QUERY_MAX], of.get("topic", "").strip()[:QUERY_MAX]
        rows, following = status.groups((after, behind), find, topic)
        return super().get_context_data(
            **{**kwargs, "rows": rows, "next": following, "after": after, "find": find, "of_topic": topic}
        )


class ConsumerGroupAdmin(ReadOnlyAdmin):
    order = ("consumer_group", "topic")
    list_display = ["consumer_group", "topic", "offset_acked", "paused", "updated_at"]
    views = (GroupPage, PauseGroup, ResumeGroup, ResetGroup)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ConsumerGroup]:
        queryset: QuerySet[ConsumerGroup] = super().get_queryset(request)
        return queryset.filter(consumer_group__gt="", partition_key="")

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponseBase:  # type: ignore[override]
        """Show the groups with their figures, instead of Django's list of rows."""
        return GroupList.as_view(page=self)(request)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Redirect Django's own links, such as those in its log of actions, to the group's page."""
        request.current_app = self.admin_site.name
        key = row_ids.decode(object_id, str, str)
        if key is None:
            return HttpResponseRedirect(address(request, "consumergroup_changelist"))
        return HttpResponseRedirect(address(request, "group", topic=key[0], group=key[1]))
