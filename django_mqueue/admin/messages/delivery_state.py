"""The table of delivery state: for each group, the messages that were delivered to it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import BooleanField, QuerySet, Value
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from ...models import DeliveryState
from ...policy.outcomes import outcome
from ...store.queries import search
from ..base import row_ids
from ..base.display import (
    EMPTY,
    badge,
    block,
    cell,
    column,
    first_line,
    key_column,
    moment,
    moment_column,
    printable,
    quiet,
)
from ..base.tables import FROM_OFFSET, LIMIT, Found, ReadOnlyAdmin
from ..base.urls import APP, may
from .masking import may_hold_masked
from .message_list import OUTCOMES

MASKED = "masked: see the message"
"""Shown instead of an error: a mask needs the whole message, and this table does not have it."""


class DeliveryStateAdmin(ReadOnlyAdmin):
    """The rows in the order of the primary key. A row's URL contains the whole key (see ``row_ids``)."""

    order = ("consumer_group", "topic", "partition_key", "message_offset")
    lookups = {
        "consumer_group": "Group", "topic": "Topic", "partition_key": "Key", FROM_OFFSET: "From offset",
    }  # fmt: skip
    list_display = [
        "offset", "group", "topic", "key", "state", "attempts", "failures", "worker", "last", "last_error",
    ]  # fmt: skip
    fieldsets = [
        (None, {"fields": ["message", "consumer_group", "topic", "key"]}),
        ("Delivery", {"fields": ["state", "attempts", "failure_count", "delivered_to", "delivered"]}),
        ("Times", {"fields": ["invisible", "finished"]}),
        ("Protocol", {"fields": ["handed", "alone", "delivery_token"], "classes": ["collapse"]}),
        ("Failed attempts", {"fields": ["all_errors"]}),
    ]
    readonly_fields = [
        "message", "key", "state", "attempts", "delivered", "invisible", "finished", "all_errors",
    ]  # fmt: skip

    key = key_column
    offset = column("message_offset", "offset")
    group = column("consumer_group", "group")
    failures = column("failure_count", "failures")
    worker = column("delivered_to", "subscriber")
    last = moment_column("delivered_at", "delivered", short=True)
    delivered = moment_column("delivered_at", "delivered")
    invisible = moment_column("invisible_until", "invisible until")
    finished = moment_column("acked_at", "done at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[DeliveryState]:
        """Annotate each row with the user's permissions, because columns do not get the request."""
        queryset: QuerySet[DeliveryState] = super().get_queryset(request)
        return queryset.annotate(
            sees_all=Value(may(request, "unmask_message"), BooleanField()),
            sees_messages=Value(may(request, "view_message"), BooleanField()),
        )

    def narrow(self, queryset: QuerySet[DeliveryState], given: dict[str, str]) -> QuerySet[DeliveryState]:
        leading = {name: value for name, value in given.items() if name != FROM_OFFSET}
        if not leading:
            return super().narrow(queryset, given)
        from_offset = int(given[FROM_OFFSET]) if FROM_OFFSET in given else None
        narrowed = super().narrow(queryset.filter(**given), leading)
        found = Found(narrowed.model, narrowed.query, narrowed.db)
        found.keys = search.states(queryset.db, leading, from_offset, LIMIT + 1)
        return found

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> DeliveryState | None:
        key = row_ids.decode(object_id, str, str, str, int)
        try:
            return None if key is None else self.get_queryset(request).filter(pk=key).first()
        except ValueError:  # A part of the key is not a valid value of its column.
            return None

    @admin.display(description="message")
    def message(self, row: Any) -> str:
        if not row.sees_messages:
            return str(row.message_offset)
        page, site = f"admin:{APP}_message_change", self.admin_site.name
        url = reverse(page, args=(row.message_offset,), current_app=site)
        return format_html('<a href="{}">{}</a>', url, row.message_offset)

    @admin.display(description="state")
    def state(self, row: Any) -> str:
        """Return the badge of the state, by the database's clock. All decisions of the queue use this clock."""
        if row.acked:
            names = ("invisible_until", "acked_at", "delivered_to", "handed")
            view = {name: getattr(row, name) for name in names}
            found = outcome(view, _errors(row), has_letter=False, came_back=False)
            return badge("over", OUTCOMES.get(found, "done"))
        due = row.invisible_until <= row.now_ms
        if row.in_flight:
            return badge("bad", "overdue") if due else badge("good", "in flight")
        return badge("waiting", "due") if due else badge("waiting", "waits")

    @admin.display(description="attempts")
    def attempts(self, row: DeliveryState) -> int:
        return row.retry_count + 1

    @admin.display(description="last error")
    def last_error(self, row: Any) -> str:
        errors = _errors(row)
        if errors and _is_masked(row):
            return quiet(MASKED)
        return cell(first_line(str(errors[-1].get("error", "")))) if errors else EMPTY

    @admin.display(description="errors")
    def all_errors(self, row: Any) -> str:
        """Return the failed attempts, newest first."""
        if row.errors and _is_masked(row):
            return quiet(MASKED)
        sections = [
            (
                error.get("attempt", "?"),
                printable(str(error.get("by", "?"))),
                moment(at if isinstance(at := error.get("at"), int) else None),
                block(str(error.get("error", ""))),
            )
            for error in reversed(_errors(row))
        ]
        html = '<section><span class="mqueue-caption">Attempt {}, by {}, {}</span>{}</section>'
        return format_html_join("", html, sections) or EMPTY


def _is_masked(row: Any) -> bool:
    return not row.sees_all and may_hold_masked(row.topic)


def _errors(row: DeliveryState) -> list[dict[str, Any]]:
    return [error for error in row.errors or [] if isinstance(error, dict)]
