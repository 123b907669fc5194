"""The page of a group's subscribers: their status, leases and current deliveries."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from ... import conf
from ...policy import names
from ...stats import numbers
from ...stats.groups import group_progress
from ..base import subjects
from ..base.subjects import NameField
from .partitions import GroupView

SHOWN = 100
"""Maximum number of deliveries, and of subscribers, on a page."""


class OfSubscribers(subjects.OfGroup):
    subscriber = NameField("subscriber", names.SUBSCRIBER_MAX, required=False, label="Subscriber")


class SubscribersPage(GroupView):
    """All subscribers of a group, or one: ``?topic=&group=&subscriber=``."""

    route, url_name, rights = "members", "group_subscribers", ("view_subscriberheartbeat",)
    template_name = "admin/django_mqueue/subscribers.html"
    title = "Subscribers"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        form = OfSubscribers(self.request.GET)
        context = super().get_context_data(form=form, **kwargs)
        if not form.is_valid():
            return {**context, "problem": "This page needs a topic and a group."}
        asked = form.cleaned_data
        return {**context, **members(asked["topic"], asked["group"], asked["subscriber"] or None)}

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        context = self.get_context_data(title=self.title)
        return self.render_to_response(context, status=404 if "problem" in context else 200)


def members(topic: str, group: str, subscriber: str | None = None) -> dict[str, Any]:
    """Return the context of the subscribers' template: live subscribers first, and their messages in flight."""
    using = conf.database()
    everybody = numbers.subscribers(topic, group, using=using)
    chosen = [one for one in everybody if subscriber in (None, one.name)]
    order = {"alive": 0, "silent": 1, "left": 2}
    chosen.sort(key=lambda one: (order[one.status], one.name))
    found = group_progress.deliveries(topic, group, subscriber=subscriber, limit=SHOWN, using=using)
    return {
        "topic": topic,
        "group": group,
        "subscriber": subscriber,
        "members": chosen[:SHOWN],
        "members_left_off": max(len(chosen) - SHOWN, 0),
        "in_hand": found.deliveries,
        "more_in_hand": found.more,
    }
