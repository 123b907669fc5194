"""The page of heartbeats: which subscribers are alive."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from ... import conf
from ..base.display import badge, column, moment_column
from ..base.lookups import GROUP, TOPIC_OF_GROUP, Lookup
from ..base.pages import ReadOnlyAdmin
from ..base.row_links import RowLink, of_group
from .subscribers import SubscribersPage


def _subscriber(row: Any) -> dict[str, str]:
    return {**of_group(row), "subscriber": row.subscriber_name}


class SubscriberHeartbeatAdmin(ReadOnlyAdmin):
    order = ("consumer_group", "topic", "subscriber_name")
    lookups = (GROUP, TOPIC_OF_GROUP, Lookup("subscriber_name", "Subscriber", needs=("topic",)))
    views = (SubscribersPage,)
    row_links = (RowLink("What it does", "group_subscribers", SubscribersPage.rights, _subscriber),)
    list_display = ["subscriber_name", "group", "topic", "state", "heartbeat_short", "deregistered_short"]
    fieldsets = [
        (None, {"fields": ["subscriber_name", "consumer_group", "topic"]}),
        ("Life", {"fields": ["state", "heartbeat", "deregistered", "incarnation"]}),
    ]
    readonly_fields = ["state", "heartbeat", "deregistered"]

    group = column("consumer_group", "group")
    heartbeat_short = moment_column("heartbeat_at", "last heartbeat", short=True)
    deregistered_short = moment_column("deregistered_at", "deregistered", short=True)
    heartbeat = moment_column("heartbeat_at", "last heartbeat")
    deregistered = moment_column("deregistered_at", "deregistered")

    @admin.display(description="state")
    def state(self, row: Any) -> str:
        """Return the badge of the state, by the database's clock and the topic's LEASE_DURATION.

        Fair shares use the same rule to count live subscribers.
        """
        if row.deregistered_at is not None:
            return badge("over", "left")
        if row.heartbeat_at <= row.now_ms - conf.lease_ms(row.topic):
            return badge("bad", "silent")
        return badge("good", "alive")
