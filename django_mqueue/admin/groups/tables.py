"""The tables of leases, heartbeats and offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from ... import conf
from ...models import Offset, PartitionLease
from ...store import removal
from ...store.offsets import REMOVING
from ..base.display import EMPTY, badge, column, key, key_column, moment_column, printable
from ..base.tables import ReadOnlyAdmin
from .model_admin import PartitionsPage, SubscribersPage
from .releasing import ReleaseLeases

if TYPE_CHECKING:
    from django.contrib.admin.views.main import ChangeList

LOOKUPS = {"consumer_group": "Group", "topic": "Topic", "partition_key": "Key"}


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


def _is_over(row: Any, at: int) -> bool:
    """Return whether a lease or a heartbeat of the time ``at`` has expired, by the database's clock."""
    return bool(at <= row.now_ms - conf.lease_ms(row.topic))


class PartitionLeaseAdmin(ReadOnlyAdmin):
    """The leases: the subscriber that receives the messages of each partition."""

    order = ("consumer_group", "topic", "partition_key")
    lookups = LOOKUPS
    views = (ReleaseLeases,)
    row_links = (("Partition", "group_partitions", _partition), ("Release", "release_leases", _held))
    list_display = ["key", "group", "topic", "state", "owner", "leased_short", "renewed_short"]
    fieldsets = [
        (None, {"fields": ["consumer_group", "topic", "key"]}),
        ("Lease", {"fields": ["state", "owner", "incarnation", "leased", "renewed"]}),
    ]
    readonly_fields = ["key", "state", "owner", "incarnation", "leased", "renewed"]

    key = key_column
    group = column("consumer_group", "group")
    owner = column("leased_by", "subscriber")
    incarnation = column("holder", "subscriber's incarnation")
    leased_short = moment_column("leased_at", "leased", short=True)
    renewed_short = moment_column("lease_renewed_at", "renewed", short=True)
    leased = moment_column("leased_at", "leased")
    renewed = moment_column("lease_renewed_at", "renewed")

    @admin.display(description="state")
    def state(self, row: Any) -> str:
        if not row.holder:
            return badge("waiting", "free")
        return badge("bad", "expired") if _is_over(row, row.lease_renewed_at) else badge("good", "held")


class SubscriberHeartbeatAdmin(ReadOnlyAdmin):
    """The heartbeats: which subscribers are alive."""

    order = ("consumer_group", "topic", "subscriber_name")
    lookups = {"consumer_group": "Group", "topic": "Topic", "subscriber_name": "Subscriber"}
    views = (SubscribersPage,)
    row_links = (("Subscriber", "group_subscribers", _subscriber),)
    list_display = ["subscriber_name", "group", "topic", "state", "heartbeat_short", "deregistered_short"]
    fieldsets = [
        (None, {"fields": ["subscriber_name", "consumer_group", "topic"]}),
        ("State", {"fields": ["state", "heartbeat", "deregistered", "incarnation"]}),
    ]
    readonly_fields = ["state", "heartbeat", "deregistered"]

    group = column("consumer_group", "group")
    heartbeat_short = moment_column("heartbeat_at", "last heartbeat", short=True)
    deregistered_short = moment_column("deregistered_at", "deregistered", short=True)
    heartbeat = moment_column("heartbeat_at", "last heartbeat")
    deregistered = moment_column("deregistered_at", "deregistered")

    @admin.display(description="state")
    def state(self, row: Any) -> str:
        """Return the badge of the state, by the rule that workers use to count live subscribers."""
        if row.deregistered_at is not None:
            return badge("over", "left")
        return badge("bad", "silent") if _is_over(row, row.heartbeat_at) else badge("good", "alive")


class RowsFilter(admin.SimpleListFilter):
    """A filter: rows of groups, or rows of topics. The choices are fixed, so no query reads them."""

    title = "rows of"
    parameter_name = "whose"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("topics", "Topics")]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Call the rows of groups "Groups", not "All"."""
        for choice in super().choices(changelist):
            yield {**choice, "display": "Topics" if choice["display"] == "Topics" else "Groups"}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Offset]) -> QuerySet[Offset]:
        if self.value() == "topics":
            return queryset.filter(consumer_group="", topic__gt="")
        return queryset.filter(consumer_group__gt="")


class OffsetAdmin(ReadOnlyAdmin):
    """The rows of groups and topics. Rows of the gate are left out: they are only locks."""

    order = ("consumer_group", "topic", "partition_key")
    lookups = LOOKUPS
    list_filter = [RowsFilter]
    views = (PartitionsPage,)
    row_links = (("Partitions", "group_partitions", _partition),)
    list_display = ["partition", "group", "topic", "offset_acked", "scan_offset", "status", "updated_short"]
    fieldsets = [
        (None, {"fields": ["partition", "group", "topic"]}),
        ("Position", {"fields": ["offset_acked", "scan_offset", "status", "updated"]}),
    ]
    readonly_fields = ["partition", "group", "status", "updated"]

    group = column("consumer_group", "group")
    updated_short = moment_column("updated_at", "updated", short=True)
    updated = moment_column("updated_at", "updated")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Offset]:
        queryset: QuerySet[Offset] = super().get_queryset(request)
        return queryset.exclude(consumer_group="", topic="")

    @admin.display(description="row")
    def partition(self, row: Offset) -> str:
        if row.consumer_group:
            return key(row.partition_key) if row.partition_key else "registration"
        if group := removal.group_of(row.partition_key):
            return f"removal of group {printable(group)}"
        return "topic: settled offset and position of garbage collection"

    @admin.display(description="status")
    def status(self, row: Offset) -> str:
        """Return the badge of a registration or of a removal. Other rows cannot be paused or reset."""
        if not row.consumer_group and removal.group_of(row.partition_key):
            return badge("bad", "being removed")
        if row.partition_key or not row.consumer_group:
            return EMPTY
        if row.scan_offset == REMOVING:
            return badge("bad", "resetting")
        return badge("bad", "paused") if row.paused else badge("good", "active")
