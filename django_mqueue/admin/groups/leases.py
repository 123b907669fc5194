"""The page of leases: the subscriber that delivers from each partition."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from ... import conf
from ...models import PartitionLease
from ..base.display import EMPTY, badge, column, key_column, moment_column
from ..base.lookups import GROUP, KEY, TOPIC_OF_GROUP
from ..base.pages import ReadOnlyAdmin
from ..base.row_links import RowLink, of_group
from .partitions import PartitionsPage
from .releasing import ReleaseLeases


def _partition(row: PartitionLease) -> dict[str, str]:
    return {**of_group(row), "key": row.partition_key}


def _held(row: PartitionLease) -> dict[str, str] | None:
    return {**of_group(row), "partition": row.partition_key, "holder": row.holder} if row.holder else None


class PartitionLeaseAdmin(ReadOnlyAdmin):
    order = ("consumer_group", "topic", "partition_key")
    lookups = (GROUP, TOPIC_OF_GROUP, KEY)
    views = (ReleaseLeases,)
    row_links = (
        RowLink("Partition", "group_partitions", PartitionsPage.rights, _partition),
        RowLink("Release", "release_leases", ReleaseLeases.rights, _held),
    )
    list_display = ["key", "group", "topic", "state", "owner", "leased_short", "renewed_short"]
    fieldsets = [
        (None, {"fields": ["consumer_group", "topic", "key"]}),
        ("Lease", {"fields": ["state", "owner", "incarnation", "leased", "renewed"]}),
    ]
    readonly_fields = ["key", "state", "owner", "incarnation", "leased", "renewed"]

    key = key_column
    group = column("consumer_group", "group")
    leased_short = moment_column("leased_at", "leased", short=True)
    renewed_short = moment_column("lease_renewed_at", "renewed", short=True)
    leased = moment_column("leased_at", "leased")
    renewed = moment_column("lease_renewed_at", "renewed")

    @admin.display(description="state")
    def state(self, row: Any) -> str:
        """Return the badge of the state, by the database's clock and the topic's LEASE_DURATION, as workers do."""
        if not row.holder:
            return badge("waiting", "free")
        if row.lease_renewed_at <= row.now_ms - conf.lease_ms(row.topic):
            return badge("bad", "expired")
        return badge("good", "held")

    @admin.display(description="leased by")
    def owner(self, row: PartitionLease) -> str:
        return row.leased_by or EMPTY

    @admin.display(description="holder's incarnation")
    def incarnation(self, row: PartitionLease) -> str:
        return row.holder or EMPTY
