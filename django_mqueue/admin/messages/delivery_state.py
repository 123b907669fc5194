"""The table of delivery state: for each group, the messages that were delivered to it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import BooleanField, QuerySet, Value
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...browse.masking import may_hold_masked
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
    moment,
    moment_columns,
    printable,
    quiet,
)
from ..base.tables import FROM_OFFSET, LIMIT, GroupTable, with_keys
from ..base.urls import APP, may
from .message_list import OUTCOMES

MASKED = gettext_lazy("masked: see the message")
"""Shown instead of an error: a mask needs the whole message, and this table does not have it."""


class DeliveryStateAdmin(GroupTable):
    """The rows in the order of the primary key. A row's URL contains the whole key (see ``row_ids``)."""

    ordering = (*GroupTable.ordering, "message_offset")
    lookups = {**GroupTable.lookups, FROM_OFFSET: gettext_lazy("From offset")}
    list_display = [
        "offset", "group", "topic", "key", "state", "attempts", "failures", "worker", "last", "last_error",
    ]  # fmt: skip
    fieldsets = [
        (None, {"fields": ["message", "consumer_group", "topic", "key"]}),
        (
            gettext_lazy("Delivery"),
            {"fields": ["state", "attempts", "failure_count", "delivered_to", "delivered", "returned"]},
        ),
        (gettext_lazy("Times"), {"fields": ["invisible", "finished"]}),
        (
            gettext_lazy("Protocol"),
            {"fields": ["handed", "alone", "delivery_token"], "classes": ["collapse"]},
        ),
        (gettext_lazy("Failed attempts"), {"fields": ["all_errors"]}),
    ]

    offset = column("message_offset", gettext_lazy("offset"))
    failures = column("failure_count", gettext_lazy("failures"))
    worker = column("delivered_to", gettext_lazy("subscriber"))
    last, delivered = moment_columns("delivered_at", gettext_lazy("delivered"))
    invisible = moment_columns("invisible_until", gettext_lazy("invisible until"))[1]
    finished = moment_columns("acked_at", gettext_lazy("done at"))[1]

    def get_queryset(self, request: HttpRequest) -> QuerySet[DeliveryState]:
        """Annotate each row with the user's permissions, because columns do not get the request."""
        queryset: QuerySet[DeliveryState] = super().get_queryset(request)
        return queryset.annotate(
            sees_all=Value(may(request, "unmask_message"), BooleanField()),
            sees_messages=Value(may(request, "view_message"), BooleanField()),
        )

    def narrow(self, queryset: QuerySet[DeliveryState], given: dict[str, str]) -> QuerySet[DeliveryState]:
        leading = {name: value for name, value in given.items() if name != FROM_OFFSET}
        if "consumer_group" not in given and given.keys() != {"topic"}:
            return super().narrow(queryset, given)
        if "consumer_group" not in given:
            keys = search.states_of_topic(queryset.db, given["topic"], LIMIT + 1)
            return with_keys(super().narrow(queryset, given), keys)
        from_offset = int(given[FROM_OFFSET]) if FROM_OFFSET in given else None
        narrowed = super().narrow(queryset.filter(**given), leading)
        return with_keys(narrowed, search.states(queryset.db, leading, from_offset, LIMIT + 1))

    def find_row(self, request: HttpRequest, object_id: str) -> DeliveryState | None:
        key = row_ids.decode(object_id, str, str, str, int)
        try:
            return None if key is None else self.get_queryset(request).filter(pk=key).first()
        except ValueError:  # A part of the key is not a valid value of its column.
            return None

    @admin.display(description=gettext_lazy("message"))
    def message(self, row: Any) -> str:
        if not row.sees_messages:
            return str(row.message_offset)
        page, site = f"admin:{APP}_message_change", self.admin_site.name
        url = reverse(page, args=(row.message_offset,), current_app=site)
        return format_html('<a href="{}">{}</a>', url, row.message_offset)

    @admin.display(description=gettext_lazy("state"))
    def state(self, row: Any) -> str:
        """Return the badge of the state, by the database's clock. All decisions of the queue use this clock."""
        if row.acked:
            names = ("invisible_until", "acked_at", "delivered_to", "handed")
            view = {name: getattr(row, name) for name in names}
            found = outcome(view, _errors(row), has_dead_letter=False, was_redriven=False)
            return badge("over", OUTCOMES.get(found, _("done")))
        due = row.invisible_until <= row.now_ms
        if row.in_flight:
            return badge("bad", _("overdue")) if due else badge("good", _("in flight"))
        return badge("waiting", _("due") if due else _("waits"))

    @admin.display(description=gettext_lazy("attempts"))
    def attempts(self, row: DeliveryState) -> int:
        return row.retry_count + row.handed

    @admin.display(description=gettext_lazy("return value or progress of the job"))
    def returned(self, row: Any) -> str:
        if row.result is None:
            return EMPTY
        if _is_masked(row):
            return quiet(_("masked"))
        from ...tasks.context import is_note, progress_in

        if is_note(row.result):
            return cell(str(progress_in(row.result) or ""))
        return block(bytes(row.result).decode(errors="replace"))

    @admin.display(description=gettext_lazy("last error"))
    def last_error(self, row: Any) -> str:
        errors = _errors(row)
        if errors and _is_masked(row):
            return quiet(MASKED)
        return cell(first_line(str(errors[-1].get("error", "")))) if errors else EMPTY

    @admin.display(description=gettext_lazy("errors"))
    def all_errors(self, row: Any) -> str:
        """Return the failed attempts, newest first."""
        if row.errors and _is_masked(row):
            return quiet(MASKED)
        sections = [(_caption(error), block(str(error.get("error", "")))) for error in reversed(_errors(row))]
        html = '<section><span class="mqueue-caption">{}</span>{}</section>'
        return format_html_join("", html, sections) or EMPTY


def _caption(error: dict[str, Any]) -> str:
    """Return the title of a failed attempt, or of a removal, as HTML."""
    at = error.get("at")
    time = moment(at if isinstance(at, int) else None)
    if error.get("attempt") == 0:  # The note that the message was removed.
        return time
    return format_html(
        _("Attempt {attempt}, by {subscriber}, {time}"),
        attempt=error.get("attempt", "?"),
        subscriber=printable(str(error.get("by", "?"))),
        time=time,
    )


def _is_masked(row: Any) -> bool:
    return not row.sees_all and may_hold_masked(row.topic)


def _errors(row: DeliveryState) -> list[dict[str, Any]]:
    return [error for error in row.errors or [] if isinstance(error, dict)]
