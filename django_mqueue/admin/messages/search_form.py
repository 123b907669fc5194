"""The search form of messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...inspect import Inspected
from ...policy import names
from ...policy.filters import PAYLOAD, filter_of, payload_path
from ...policy.message_query import DEAD, DONE, IN_FLIGHT, PENDING, SCHEDULED, WAITING
from ..base import choices
from ..base.display import Text
from ..base.forms import Moment, name_field

NEWEST, OLDEST = "newest", "oldest"
TITLES = {
    PENDING: gettext_lazy("Pending"), IN_FLIGHT: gettext_lazy("In flight"), WAITING: gettext_lazy("For retry"),
    DONE: gettext_lazy("Done"), DEAD: gettext_lazy("Dead"), SCHEDULED: gettext_lazy("Scheduled"),
}  # fmt: skip
BY_DUE_TIME = (IN_FLIGHT, WAITING)
"""Statuses whose messages cannot be listed newest first: their order is by key and time."""


_NOT_RESTRICTING = ("order", "derived")
"""The fields that do not restrict the messages of a topic."""


def value_of(text: str) -> Any:
    """Return the value of a field: the parsed JSON, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _name(argument: str, limit: int, label: Text, size: int = 14) -> forms.CharField:
    return name_field(argument, limit, required=False, label=label, widget=forms.TextInput({"size": size}))


def _text(label: Text, size: int, attributes: Any = None, **kwargs: Any) -> forms.CharField:
    widget = forms.TextInput({"size": size, **(attributes or {})})
    return forms.CharField(required=False, label=label, widget=widget, **kwargs)


class SearchForm(forms.Form):
    """The search form. A message must match all fields that are given."""

    find = _text(gettext_lazy("Id, key or offset"), 22, {"type": "search"}, max_length=names.KEY_MAX)
    topic = name_field(
        "topic", names.LONG_TOPIC_MAX, required=False, label=gettext_lazy("Topic"), widget=choices.TOPIC_INPUT
    )
    group = name_field(
        "group", names.GROUP_MAX, required=False, label=gettext_lazy("Group"), widget=choices.GROUP_INPUT
    )
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
    derived = forms.BooleanField(
        required=False, label=gettext_lazy("With dead letters, scheduled messages and replies")
    )

    FIRST = ("find", "topic", "group", "status", "key", "id", "kind", "order")

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
        if given.get("path") and not all(payload_path(given["path"]).removeprefix(PAYLOAD).split("__")):
            self.add_error("path", _("The path has an empty part, between two dots or at an end."))
        if given.get("header", "").startswith(PAYLOAD):
            text = _("Headers that begin with %(prefix)s cannot be searched.")
            self.add_error("header", text % {"prefix": PAYLOAD})
        if given.get("status") and given["status"] not in ("scheduled", "dead") and not given.get("group"):
            text = _("%(status)s is the status of a message for one group. Give the group.")
            self.add_error("group", text % {"status": TITLES[given["status"]]})
        others = [
            name
            for name, value in given.items()
            if value and name not in ("find", "topic", *_NOT_RESTRICTING)
        ]
        if given.get("find"):
            if others:
                text = _("Leave this empty, or leave all other fields except the topic empty.")
                self.add_error("find", text)
        elif others and not given.get("topic") and "topic" not in self.errors:
            self.add_error(
                "topic",
                _("Give a topic. Without a topic, only the newest messages of all topics are listed."),
            )
        return given

    @property
    def is_asked(self) -> bool:
        """True if a field restricts the messages."""
        return any(value for name, value in self.cleaned_data.items() if name not in _NOT_RESTRICTING)

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
            wanted[payload_path(given["path"])] = value_of(given["value"])
        if given["header"]:
            wanted[given["header"]] = value_of(given["header_value"])
        try:
            test: Any = filter_of(wanted or None)
        except (TypeError, ValueError) as problem:
            raise ValidationError(str(problem)) from None
        return test  # type: ignore[no-any-return]
