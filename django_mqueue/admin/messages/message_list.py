"""The list of messages: the newest messages of all topics, or the messages of one topic that match the form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf, inspect
from ...browse import message_search
from ...exceptions import MQueueError
from ...inspect import Figure, Inspected, Page
from ...policy import names
from ...policy.filters import PAYLOAD, filter_of
from ...policy.message_query import DEAD, DONE, IN_FLIGHT, PENDING, SCHEDULED, WAITING
from ...policy.outcomes import (  # fmt: skip
    BEFORE_START,
    DEAD_LETTERED,
    NOT_RECORDED,
    REDRIVEN,
    REMOVED,
    SET_ASIDE,
    SKIPPED,
)
from ...service.registration import topic_limit
from ...stats.results import AT_LEAST, EXACT
from ..base.display import EMPTY, Text, badge, cell, first_line, key, printable, quiet
from ..base.forms import Moment, name_field
from ..base.urls import NAVIGATION, page_url
from ..base.views import QueueView
from . import payloads
from .masking import as_seen, sees_all, shown

NEWEST, OLDEST = "newest", "oldest"
TITLES = {
    PENDING: gettext_lazy("Pending"), IN_FLIGHT: gettext_lazy("In flight"), WAITING: gettext_lazy("For retry"),
    DONE: gettext_lazy("Done"), DEAD: gettext_lazy("Dead"), SCHEDULED: gettext_lazy("Scheduled"),
}  # fmt: skip
BY_DUE_TIME = (IN_FLIGHT, WAITING)
"""Statuses whose messages cannot be listed newest first: their order is by key and time."""


def value_of(text: str) -> Any:
    """Return the value of a field: the parsed JSON, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def path_of(text: str) -> str:
    """Return a path such as ``customer.id`` in the notation of the queue's filters."""
    return PAYLOAD + text.replace(".", "__")


def _name(argument: str, limit: int, label: Text, size: int = 14) -> forms.CharField:
    return name_field(argument, limit, required=False, label=label, widget=forms.TextInput({"size": size}))


def _text(label: Text, size: int, attributes: Any = None, **kwargs: Any) -> forms.CharField:
    widget = forms.TextInput({"size": size, **(attributes or {})})
    return forms.CharField(required=False, label=label, widget=widget, **kwargs)


class SearchForm(forms.Form):
    """The search form. A message must match all fields that are given."""

    topic = _name("topic", topic_limit(), gettext_lazy("Topic"), 18)
    group = _name("group", names.GROUP_MAX, gettext_lazy("Group"))
    status = forms.ChoiceField(
        choices=[("", gettext_lazy("All")), *TITLES.items()], required=False, label=gettext_lazy("Status")
    )
    key = _name("key", names.KEY_MAX, gettext_lazy("Key"))
    id = _name("id", names.ID_MAX, gettext_lazy("Id"), 18)
    kind = _text(gettext_lazy("Kind"), 14, strip=False, max_length=names.KIND_MAX)
    order = forms.ChoiceField(
        choices=[(NEWEST, gettext_lazy("Newest first")), (OLDEST, gettext_lazy("Oldest first"))],
        required=False,
        label=gettext_lazy("Order"),
    )
    after = Moment(required=False, label=gettext_lazy("Published from"))
    before = Moment(required=False, label=gettext_lazy("Published before"))
    path = _text(gettext_lazy("Path in the payload"), 18, {"placeholder": "customer.id"}, strip=False)
    value = _text(gettext_lazy("is"), 12)
    header = _text(gettext_lazy("Header"), 14, strip=False)
    header_value = _text(gettext_lazy("is"), 12)

    FIRST = ("topic", "group", "status", "key", "id", "kind", "order")

    def first_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.FIRST]

    def more_fields(self) -> list[forms.BoundField]:
        return [field for field in self if field.name not in self.FIRST]

    @property
    def has_more(self) -> bool:
        """True if one of ``more_fields`` has a value."""
        return any(self.data.get(field.name) for field in self.more_fields())

    def clean(self) -> dict[str, Any]:
        given = self.cleaned_data
        for field, value in (("path", "value"), ("header", "header_value")):
            if given.get(field) and not given.get(value):
                self.add_error(
                    value,
                    _('Give the value: a number, true, false, null or a text. "" is an empty text.'),
                )
            elif given.get(value) and not given.get(field) and field not in self.errors:
                self.add_error(field, _("Give the path or the header that has this value."))
        if given.get("path") and not all(path_of(given["path"]).removeprefix(PAYLOAD).split("__")):
            self.add_error("path", _("The path has an empty part, between two dots or at an end."))
        if given.get("header", "").startswith(PAYLOAD):
            text = _("Headers that begin with %(prefix)s cannot be searched.")
            self.add_error("header", text % {"prefix": PAYLOAD})
        if given.get("status") and given["status"] not in ("scheduled", "dead") and not given.get("group"):
            text = _("%(status)s is the status of a message for one group. Give the group.")
            self.add_error("group", text % {"status": TITLES[given["status"]]})
        is_asked = any(value for name, value in given.items() if name != "order")
        if is_asked and not given.get("topic") and "topic" not in self.errors:
            self.add_error(
                "topic",
                _("Give a topic. Without a topic, only the newest messages of all topics are listed."),
            )
        return given

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``inspect.messages``, except ``filter`` and the arguments for paging."""
        given = self.cleaned_data
        is_newest_first = given.get("order") != OLDEST and given.get("status") not in BY_DUE_TIME
        names_ = ("topic", "group", "status", "key", "id", "kind", "after", "before")
        return {**{name: given[name] or None for name in names_}, "newest_first": is_newest_first}

    def test(self) -> Callable[[Inspected], bool] | None:
        """Return a filter for payload and headers, or None if the form asks for neither.

        Raises ``ValidationError`` if the filter is invalid.
        """
        given, wanted = self.cleaned_data, {}
        if given["path"]:
            wanted[path_of(given["path"])] = value_of(given["value"])
        if given["header"]:
            wanted[given["header"]] = value_of(given["header_value"])
        try:
            test: Any = filter_of(wanted or None)
        except (TypeError, ValueError) as problem:
            raise ValidationError(str(problem)) from None
        return test  # type: ignore[no-any-return]


ROWS = 100
SCAN_LIMIT = 2_000
"""Maximum number of messages that a page reads if no index serves the filter."""
MASKED_IN_LIST = 16_384
"""Maximum bytes of a payload that the list reads in order to mask it."""
COUNTED = 1_000
KEPT = 10
"""Seconds for which a group's counts stay in Django's cache."""
BADGES = {
    PENDING: ("waiting", gettext_lazy("pending")),
    IN_FLIGHT: ("good", gettext_lazy("in flight")),
    WAITING: ("waiting", gettext_lazy("for retry")),
    DONE: ("over", gettext_lazy("done")),
    DEAD: ("bad", gettext_lazy("dead")),
    SCHEDULED: ("waiting", gettext_lazy("scheduled")),
}
"""The kind and the text of the badge of each status."""
OUTCOMES = {
    SKIPPED: gettext_lazy("skipped"),
    DEAD_LETTERED: gettext_lazy("dead-lettered"),
    REDRIVEN: gettext_lazy("redriven"),
    REMOVED: gettext_lazy("removed"),
    SET_ASIDE: gettext_lazy("parked"),
    BEFORE_START: gettext_lazy("before the group's start"),
    NOT_RECORDED: gettext_lazy("not recorded"),
}
"""Badges of messages that are done although no handler has finished them."""


class MessagesPage(QueueView):
    """The list of messages: ``?topic=`` and the other fields of ``SearchForm``.

    ``start``: the position from which the list continues; the link of the previous page contains it.
    """

    url_name = "message_changelist"
    template_name = "admin/django_mqueue/messages.html"
    title = NAVIGATION["message_changelist"]
    is_list = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        form = SearchForm(self.request.GET)
        found: Page | None = None
        if form.is_valid():
            try:
                found = self._found(form)
            except (MQueueError, ValueError, TypeError) as problem:
                form.add_error(None, printable(str(problem)))
            except ValidationError as problem:
                form.add_error(None, problem)
        listed = {} if found is None else self._listed(form, found)
        topic = form.cleaned_data.get("topic") or ""
        return super().get_context_data(form=form, topic=topic, found=found, **listed, **kwargs)

    def _found(self, form: SearchForm) -> Page:
        topic, start = form.cleaned_data["topic"], self.request.GET.get("start") or None
        topics = [topic] if topic else ["", *conf.topics()]
        sees_everything = all(sees_all(self.request, one) for one in topics)
        payload_limit = payloads.HEAD_BYTES if sees_everything else MASKED_IN_LIST
        if not topic:
            return message_search.newest_of_all(
                conf.database(), limit=ROWS, start=start, payload_limit=payload_limit
            )
        test = form.test()
        return inspect.messages(
            **form.arguments(),
            filter=None if test is None else as_seen(self.request, test),
            limit=ROWS,
            start=start,
            scan_limit=SCAN_LIMIT,
            payload_limit=payload_limit,
        )

    def _listed(self, form: SearchForm, found: Page) -> dict[str, Any]:
        given = form.cleaned_data
        has_dead_letters = not given["topic"] or given["status"] == DEAD
        rows = [self._row(shown(self.request, message), has_dead_letters) for message in found]
        is_first = not self.request.GET.get("start")
        return {
            "rows": rows,
            "with_topic": not given["topic"],
            "with_due": not given["topic"] or given["status"] == SCHEDULED,
            "with_published": given["status"] != SCHEDULED,
            "with_group": bool(given["group"] or given["status"]),
            "is_short": found.next is not None and len(rows) < ROWS,
            "next_url": None if found.next is None else self._url(start=found.next),
            "first_url": None if is_first else self._url(start=None),
            "is_asked": any(value for name, value in given.items() if name != "order"),
            "by_due_time": given["status"] in BY_DUE_TIME,
            "counts": self._counts(given) if is_first and given["group"] else [],
        }

    def _url(self, **changed: str | None) -> str:
        """Return the URL of this page with changed parameters."""
        query = self.request.GET
        given: dict[str, object] = {
            name: query[name] for name in (*SearchForm.base_fields, "start") if query.get(name)
        }
        return page_url(self.request, self.url_name, **{**given, **changed})

    def _counts(self, given: Mapping[str, Any]) -> list[tuple[Text, Figure, str, bool]]:
        """Return (title, count, URL, is listed now) for each status of a group, except done."""
        counts = _counts(given["topic"], given["group"], given["key"])
        return [
            (TITLES[status], count, self._url(status=status, start=None), given["status"] == status)
            for status, count in counts.items()
        ]

    def _row(self, message: Inspected, has_dead_letters: bool) -> dict[str, Any]:
        offset, prefix = message.offset, ""
        if has_dead_letters:
            offset = message.offset if message.dead_letter is None else message.dead_letter
            prefix = f"{message.group}: " if message.group else ""
        error = message.errors[-1].error if message.errors else ""
        return {
            "message": message,
            "offset": offset,
            "url": page_url(self.request, "message_change", offset),
            "due": message.available_at if _is_scheduled(message) else None,
            "key": quiet(_("no key")) if message.key is None else key(message.key),
            "status": status_badge(message.status, message.outcome),
            "payload": payloads.beginning(message),
            "failure": cell(f"{prefix}{first_line(error)}") if error else EMPTY,
        }


def _counts(topic: str, group: str, key_: str) -> dict[str, Figure]:
    """Return the counts of a group, or of one key up to ``COUNTED``, by status. Done messages are not counted."""
    statuses = [status for status in TITLES if status != DONE]
    if not key_:
        figures = inspect.group_figures([(topic, group)], max_age=KEPT)[topic, group]
        return {status: getattr(figures, status) for status in statuses} if figures.registered else {}
    try:
        counts = inspect.counts(topic, group=group, key=key_, cap=COUNTED, scan_limit=SCAN_LIMIT)
    except MQueueError:  # The group is not registered, but may have dead letters.
        return {}
    return {
        status: Figure(getattr(counts, status), AT_LEAST if status in counts.more else EXACT)
        for status in statuses
    }


def _is_scheduled(message: Inspected) -> bool:
    """Return whether the message is not due yet. In the list of all topics, only the row's topic shows this."""
    return message.status == SCHEDULED or message.topic.endswith(names.SCHEDULED_SUFFIX)


def status_badge(status: str | None, outcome: str | None = None) -> str:
    if status is None:
        return EMPTY
    kind, text = BADGES[status]
    return badge(kind, OUTCOMES.get(outcome or "", text) if status == DONE else text)
