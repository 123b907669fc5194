"""Consumer groups: their list, the page of one group of one topic, its partitions and its subscribers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf, inspect
from ...exceptions import MQueueError
from ...inspect import GroupFigures, PartitionLag
from ...policy import names
from ...stats import alarms, numbers
from ...stats.groups import group_progress
from ...stats.summaries import group_row
from ...store.connection import session
from ..base import row_ids
from ..base.display import Text, printable, problem_text, seconds_text
from ..base.forms import GroupForm, name_field, partition_field
from ..base.operations import group_title
from ..base.tables import ReadOnlyAdmin
from ..base.urls import NAVIGATION, allowed_url, may_open, page_url
from ..base.views import QueueView
from ..jobs.job_list import Jobs
from ..jobs.recurring import PauseJob, RecurringJobs, ResumeJob, RunJob
from ..jobs.stopping import StopJob
from ..topics import actions, charts, status
from ..topics.overview import EVERY, NAME_MAX
from .pausing import PauseGroup, ResumeGroup
from .removing import RemoveMessages
from .resetting import ResetGroup
from .tools import group_tools
from .unsubscribing import UnsubscribeGroup

PER_PAGE = 50
SHOWN = 100
"""Maximum number of deliveries, and of subscribers, on a page."""


class SubscribersForm(GroupForm):
    subscriber = name_field(
        "subscriber", names.SUBSCRIBER_MAX, required=False, label=gettext_lazy("Subscriber")
    )


class PartitionsForm(SubscribersForm):
    key = partition_field(required=False, label=gettext_lazy("Key"))
    after = forms.CharField(required=False, strip=False, widget=forms.HiddenInput)
    field_order = ("topic", "group", "key", "subscriber")


class GroupFormPage(QueueView):
    """A page about one group: ``?topic=&group=`` and the other fields of its form."""

    form_class: type[GroupForm]

    def parents(self) -> list[tuple[Text, str | None]]:
        topic, group = (self.request.GET.get(name, "") for name in ("topic", "group"))
        url = allowed_url(self.request, "group", topic=topic, group=group)
        groups = page_url(self.request, "consumergroup_changelist")
        if not url:
            return []
        return [(NAVIGATION["consumergroup_changelist"], groups), (group_title(topic, group), url)]

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        form = self.form_class(self.request.GET)
        if not form.is_valid():
            found = {"problem": _("This page needs a topic and a group.")}
        else:
            found = self.found(form.cleaned_data)
        return super().get_context_data(form=form, **found, **kwargs)

    def found(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the context of the page. ``problem``: why the group cannot be shown."""
        raise NotImplementedError

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        context = self.get_context_data()
        return self.render_to_response(context, status=404 if "problem" in context else 200)


class PartitionsPage(GroupFormPage):
    """The partitions of a group: the position in each, its owner, and since when it has this owner."""

    route, url_name = "partitions", "group_partitions"
    template_name = "admin/django_mqueue/partitions.html"
    title = gettext_lazy("Partitions")
    form_class = PartitionsForm

    def found(self, data: dict[str, Any]) -> dict[str, Any]:
        group = {"topic": data["topic"], "group": data["group"]}
        key, subscriber = data["key"] or None, data["subscriber"] or None
        try:
            found = group_progress.partitions(
                **group, partition=key, subscriber=subscriber, after=data["after"], limit=PER_PAGE,
                using=conf.database(),
            )  # fmt: skip
        except (MQueueError, ValueError) as problem:
            return {**group, "problem": problem_text(problem)}
        url = page_url(self.request, self.url_name, **group, key=key, subscriber=subscriber)
        next_url = page_url(
            self.request, self.url_name, **group, key=key, subscriber=subscriber, after=found.next
        )
        return {
            **group,
            "found": found,
            "lease_duration": seconds_text(conf.get("LEASE_DURATION", data["topic"])),
            "narrowed": bool(key or subscriber),
            "first": url if data["after"] else "",
            "further": next_url if found.next else "",
        }


class SubscribersPage(GroupFormPage):
    """All subscribers of a group, or one: their status, leases and current deliveries."""

    route, url_name = "members", "group_subscribers"
    template_name = "admin/django_mqueue/subscribers.html"
    title = gettext_lazy("Subscribers")
    form_class = SubscribersForm

    def found(self, data: dict[str, Any]) -> dict[str, Any]:
        return members(data["topic"], data["group"], data["subscriber"] or None)


def members(topic: str, group: str, subscriber: str | None = None) -> dict[str, Any]:
    """Return the context of the subscribers' template: live subscribers first, and their messages in flight."""
    using = conf.database()
    chosen = [one for one in numbers.subscribers(topic, group, using=using) if subscriber in (None, one.name)]
    order = ("alive", "silent", "left")
    chosen.sort(key=lambda one: (order.index(one.status), one.name))
    found = group_progress.deliveries(topic, group, subscriber=subscriber, limit=SHOWN, using=using)
    return {
        "topic": topic,
        "group": group,
        "subscriber": subscriber,
        "members": chosen[:SHOWN],
        "members_left_off": max(len(chosen) - SHOWN, 0),
        "in_flight": found.deliveries,
        "more_in_flight": found.more,
    }


PARTITIONS_SHOWN = 25


class GroupPage(QueueView):
    """One group of one topic: ``?topic=&group=``, and optionally ``span=hour`` or ``span=day``."""

    route, url_name = "page", "group"
    template_name = "admin/django_mqueue/group.html"
    refresh_seconds, frame = EVERY, "admin/django_mqueue/figures_page.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        form = GroupForm(self.request.GET)
        if not form.is_valid():
            raise Http404(_("This page needs a topic and a group."))
        topic, group = form.cleaned_data["topic"], form.cleaned_data["group"]
        self.title = printable(group_title(topic, group))
        tools = group_tools(self.request, topic, group)
        return super().get_context_data(tools=tools, **kwargs, **self.found(topic, group))

    @session.cached_queries()
    def found(self, topic: str, group: str) -> dict[str, Any]:
        pair = (topic, group)
        span = charts.span_of(self.request.GET.get("span"))
        figures = inspect.group_figures([pair], max_age=status.COUNTS_MAX_AGE if self.is_fragment else 0)[
            pair
        ]
        found = {
            "topic": topic,
            "group": group,
            "figures": figures,
            "alarms": group_row(figures).alarms,
            "span": span,
            "spans": charts.SPANS.values(),
            "actions": actions.newest(self.request, topic, group),
        }
        if not figures.registered or figures.removing:
            return found
        max_age = status.COUNTS_MAX_AGE  # The lag chart combines rates and lag.
        rates = inspect.rates([pair], span=span.span, points=span.points, max_age=max_age)[pair]
        latency = inspect.latency(*pair, span=span.span, points=span.coarse, max_age=max_age)
        lag = inspect.lag(*pair, limit=PARTITIONS_SHOWN, max_age=max_age)
        blockers = [one for one in inspect.holds(topic, max_age=max_age) if one.group == group]
        if may_open(self.request, "group_subscribers"):
            found |= {**members(topic, group), "has_members": True}
        drawn = charts.throughput(rates), charts.latency_chart(latency), charts.lag_over_time(lag, rates)
        return {
            **found,
            "lag": lag,
            "partitions": [(one, _is_silent(one, figures)) for one in lag.partitions],
            "percentiles": charts.percentiles(latency.whole.done),
            "measured": latency.whole.done.of if latency.whole.done else 0,
            "holds": [(one, alarm) for one in blockers if (alarm := alarms.of_blocker(one))],
            "charts": drawn,
        }


def _is_silent(partition: PartitionLag, figures: GroupFigures) -> bool:
    """Return whether the owner has not renewed the lease in time. Another worker may then take the lease."""
    renewed, duration = partition.owner_renewed_at, conf.lease_ms(figures.topic)
    return renewed is not None and figures.at - renewed > timedelta(milliseconds=duration)


class GroupList(QueueView):
    """The list of all groups, a page at a time, filtered by parts of the group's and the topic's name.

    ``after`` and ``behind``: the topic and the group after which the list continues.
    """

    url_name = "consumergroup_changelist"
    template_name = "admin/django_mqueue/group_list.html"
    title = NAVIGATION["consumergroup_changelist"]
    is_top_level = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        after, behind, find, topic = (
            self.request.GET.get(name, "")[:NAME_MAX] for name in ("after", "behind", "find", "topic")
        )
        find, topic = find.strip(), topic.strip()
        rows, following = status.groups((after, behind), find, topic)
        return super().get_context_data(
            rows=rows, next=following, after=after, find=find, of_topic=topic, **kwargs
        )


class ConsumerGroupAdmin(ReadOnlyAdmin):
    views = (
        GroupPage, PauseGroup, ResumeGroup, ResetGroup, RemoveMessages, UnsubscribeGroup, Jobs, StopJob, RecurringJobs,
        PauseJob, ResumeJob, RunJob,
    )  # fmt: skip
    list_view = GroupList

    def row_url(self, request: HttpRequest, object_id: str) -> str | None:
        key = row_ids.decode(object_id, str, str)
        return page_url(request, "group", topic=key[0], group=key[1]) if key else None
