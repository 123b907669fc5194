"""The page of offsets: each group's position by partition, and the topics' own rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from ...models import Offset
from ...store import removal
from ...store.offsets import REMOVING
from ..base.display import EMPTY, badge, key, moment_column, printable
from ..base.lookups import GROUP, KEY, TOPIC_OF_GROUP
from ..base.pages import ReadOnlyAdmin
from ..base.row_links import RowLink, of_group
from .partitions import PartitionsPage

if TYPE_CHECKING:
    from django.contrib.admin.views.main import ChangeList


class RowsFilter(admin.SimpleListFilter):
    """A filter: rows of groups, or rows of topics. The choices are fixed, so no query reads them."""

    title = "owner"
    parameter_name = "whose"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("topics", "Topics")]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        for value, title in ((None, "Groups"), ("topics", "Topics")):
            yield {
                "selected": self.value() == value,
                "query_string": changelist.get_query_string(
                    {} if value is None else {self.parameter_name: value}, [self.parameter_name]
                ),
                "display": title,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Offset]) -> QuerySet[Offset]:
        if self.value() == "topics":
            return queryset.filter(consumer_group="", topic__gt="")
        return queryset.filter(consumer_group__gt="")


def _partition(row: Offset) -> dict[str, str] | None:
    """Return the query of the partitions' page: one partition, or all partitions for a registration."""
    if not row.consumer_group:
        return None
    return {**of_group(row), "key": row.partition_key} if row.partition_key else of_group(row)


class OffsetAdmin(ReadOnlyAdmin):
    """Lists groups' and topics' rows, but not the rows of the gate: they are only locks."""

    order = ("consumer_group", "topic", "partition_key")
    lookups = (GROUP, TOPIC_OF_GROUP, KEY)
    list_filter = [RowsFilter]
    views = (PartitionsPage,)
    row_links = (RowLink("Partitions", "group_partitions", PartitionsPage.rights, _partition),)
    list_display = ["partition", "group", "topic", "offset_acked", "scan_offset", "status", "updated_short"]
    fieldsets = [
        (None, {"fields": ["partition", "group", "topic"]}),
        ("Position", {"fields": ["offset_acked", "scan_offset", "status", "updated"]}),
    ]
    readonly_fields = ["partition", "group", "status", "updated"]

    updated_short = moment_column("updated_at", "updated", short=True)
    updated = moment_column("updated_at", "updated")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Offset]:
        queryset: QuerySet[Offset] = super().get_queryset(request)
        return queryset.exclude(consumer_group="", topic="")

    @admin.display(description="row")
    def partition(self, row: Offset) -> str:
        if not row.consumer_group:
            group = removal.group_of(row.partition_key)
            return (
                f"removal of group {printable(group)}"
                if group
                else "the topic's own: settled offset and cleaning's cursor"
            )
        return key(row.partition_key) if row.partition_key else "registration"

    @admin.display(description="group")
    def group(self, row: Offset) -> str:
        return row.consumer_group or EMPTY

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
