"""The tables of leases, heartbeats and offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from ... import conf
from ...models import Offset, PartitionLease
from ...store import removal
from ...store.offsets import REMOVING
from ..base.display import EMPTY, badge, column, key, moment_columns, printable, state_badge
from ..base.tables import GroupTable
from .model_admin import PartitionsPage, SubscribersPage
from .releasing import ReleaseLeases

if TYPE_CHECKING:
    from django.contrib.admin.views.main import ChangeList


def _group(row: Any) -> dict[str, str]:
    return {"topic": row.topic, "group": row.consumer_group}


def _subscriber(row: Any) -> dict[str, str]:
    return {**_group(row), "subscriber": row.subscriber_name}


def _partition(row: Any) -> dict[str, str] | None:
    """Return the query of the partitions' page: one partition, or all partitions for a registration."""
    if not row.consumer_group:
        return None
    return {**_group(row), "key": row.partition_key} if row.partition_key else _group(row)


def _held(row: PartitionLease) -> dict[str, str] | None:
    return {**_group(row), "partition": row.partition_key, "holder": row.holder} if row.holder else None


def _is_expired(row: Any, at: int) -> bool:
    """Return whether a lease or a heartbeat of the time ``at`` has expired, by the database's clock."""
    return bool(at <= row.now_ms - conf.lease_ms(row.topic))


class PartitionLeaseAdmin(GroupTable):
    """The leases: the subscriber that receives the messages of each partition."""

    views = (ReleaseLeases,)
    row_links = (
        (gettext_lazy("Partition"), "group_partitions", _partition),
        (gettext_lazy("Release"), "release_leases", _held),
    )
    list_display = ["key", "group", "topic", "state", "owner", "leased_short", "renewed_short"]
    fieldsets = [
        (None, {"fields": ["consumer_group", "topic", "key"]}),
        (gettext_lazy("Lease"), {"fields": ["state", "owner", "incarnation", "leased", "renewed"]}),
    ]

    owner = column("leased_by", gettext_lazy("subscriber"))
    incarnation = column("holder", gettext_lazy("subscriber's incarnation"))
    leased_short, leased = moment_columns("leased_at", gettext_lazy("leased"))
    renewed_short, renewed = moment_columns("lease_renewed_at", gettext_lazy("renewed"))

    @admin.display(description=gettext_lazy("state"))
    def state(self, row: Any) -> str:
        if not row.holder:
            return state_badge("free")
        return state_badge("expired" if _is_expired(row, row.lease_renewed_at) else "held")


class SubscriberHeartbeatAdmin(GroupTable):
    """The heartbeats: which subscribers are alive."""

    ordering = ("consumer_group", "topic", "subscriber_name")
    lookups = {
        "consumer_group": gettext_lazy("Group"),
        "topic": gettext_lazy("Topic"),
        "subscriber_name": gettext_lazy("Subscriber"),
    }
    views = (SubscribersPage,)
    row_links = ((gettext_lazy("Subscriber"), "group_subscribers", _subscriber),)
    list_display = ["subscriber_name", "group", "topic", "state", "heartbeat_short", "deregistered_short"]
    fieldsets = [
        (None, {"fields": ["subscriber_name", "consumer_group", "topic"]}),
        (gettext_lazy("State"), {"fields": ["state", "heartbeat", "deregistered", "incarnation"]}),
    ]

    heartbeat_short, heartbeat = moment_columns("heartbeat_at", gettext_lazy("last heartbeat"))
    deregistered_short, deregistered = moment_columns("deregistered_at", gettext_lazy("deregistered"))

    @admin.display(description=gettext_lazy("state"))
    def state(self, row: Any) -> str:
        """Return the badge of the state, by the rule that workers use to count live subscribers."""
        if row.deregistered_at is not None and not row.session_lock:
            return state_badge("left")
        is_silent = row.deregistered_at is not None or _is_expired(row, row.heartbeat_at)
        return state_badge("silent" if is_silent else "alive")


class RowsFilter(admin.SimpleListFilter):
    """A filter: rows of groups, or rows of topics. The choices are fixed, so no query reads them."""

    title = gettext_lazy("rows of")
    parameter_name = "whose"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("topics", _("Topics"))]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Call the first choice "Groups", not "All"."""
        first, *others = super().choices(changelist)
        yield from ({**first, "display": _("Groups")}, *others)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Offset]) -> QuerySet[Offset]:
        if self.value() == "topics":
            return queryset.filter(consumer_group="", topic__gt="")
        return queryset.filter(consumer_group__gt="")


class OffsetAdmin(GroupTable):
    """The rows of groups and topics, but not those of the gates and of the installation."""

    list_filter = [RowsFilter]
    views = (PartitionsPage,)
    row_links = ((gettext_lazy("Partitions"), "group_partitions", _partition),)
    list_display = ["partition", "group", "topic", "offset_acked", "scan_offset", "status", "updated_short"]
    fieldsets = [
        (None, {"fields": ["partition", "group", "topic"]}),
        (gettext_lazy("Position"), {"fields": ["offset_acked", "scan_offset", "status", "updated"]}),
    ]

    updated_short, updated = moment_columns("updated_at", gettext_lazy("updated"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Offset]:
        queryset: QuerySet[Offset] = super().get_queryset(request)
        return queryset.exclude(consumer_group="", topic="")

    @admin.display(description=gettext_lazy("row"))
    def partition(self, row: Offset) -> str:
        if group := not row.consumer_group and removal.group_of(row.partition_key):
            return _("removal of group %(group)s") % {"group": printable(group)}
        if row.partition_key:  # Without a group: a mark of Spark.
            return key(row.partition_key)
        if row.consumer_group:
            return _("registration")
        return _("topic: settled offset and position of garbage collection")

    @admin.display(description=gettext_lazy("status"))
    def status(self, row: Offset) -> str:
        """Return the badge of a registration or of a removal. Other rows cannot be paused or reset."""
        if not row.consumer_group and removal.group_of(row.partition_key):
            return badge("bad", _("being removed"))
        if row.partition_key or not row.consumer_group:
            return EMPTY
        if row.scan_offset == REMOVING:
            return badge("bad", _("resetting"))
        return badge("bad", _("paused")) if row.paused else badge("good", pgettext("message queue", "active"))
