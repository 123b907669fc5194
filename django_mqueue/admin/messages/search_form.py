"""The search form above the list of messages, and the query that it makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from ...inspect import Inspected
from ...policy import names
from ...policy.filters import PAYLOAD, filter_of
from ...policy.message_query import IN_FLIGHT, STATUSES, WAITING
from ...service.registration import topic_limit
from ..base.moments import Moment
from ..base.subjects import NameField

NEWEST, OLDEST = "newest", "oldest"
TITLES = {status: status.replace("_", " ").capitalize() for status in STATUSES} | {WAITING: "For retry"}
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


def _name(argument: str, limit: int, label: str, size: int = 14) -> NameField:
    return NameField(argument, limit, required=False, label=label, widget=forms.TextInput({"size": size}))


class Asking(forms.Form):
    """The search form. A message must match all fields that are given."""

    topic = _name("topic", topic_limit(), "Topic", 18)
    group = _name("group", names.GROUP_MAX, "Group")
    status = forms.ChoiceField(choices=[("", "All"), *TITLES.items()], required=False, label="Status")
    key = _name("key", names.KEY_MAX, "Key")
    id = _name("id", names.ID_MAX, "Id", 18)
    kind = forms.CharField(
        required=False, strip=False, max_length=names.KIND_MAX, widget=forms.TextInput({"size": 14})
    )
    order = forms.ChoiceField(
        choices=[(NEWEST, "Newest first"), (OLDEST, "Oldest first")], required=False, label="Order"
    )
    after = Moment(required=False, label="Published from")
    before = Moment(required=False, label="Published before")
    path = forms.CharField(
        required=False,
        strip=False,
        label="Path in the payload",
        widget=forms.TextInput({"size": 18, "placeholder": "customer.id"}),
    )
    value = forms.CharField(required=False, label="holds", widget=forms.TextInput({"size": 12}))
    header = forms.CharField(
        required=False, strip=False, label="Header", widget=forms.TextInput({"size": 14})
    )
    header_value = forms.CharField(required=False, label="is", widget=forms.TextInput({"size": 12}))

    FIRST = ("topic", "group", "status", "key", "id", "kind", "order")

    def first_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.FIRST]

    def more_fields(self) -> list[forms.BoundField]:
        return [field for field in self if field.name not in self.FIRST]

    @property
    def has_more(self) -> bool:
        """True if one of the folded fields has a value."""
        return any(self.data.get(field.name) for field in self.more_fields())

    def clean(self) -> dict[str, Any]:
        given = self.cleaned_data
        for field, value in (("path", "value"), ("header", "header_value")):
            if given.get(field) and not given.get(value):
                self.add_error(
                    value, 'Give the value at this path: a number, true, false, null, or a text; "" for none.'
                )
            elif given.get(value) and not given.get(field) and field not in self.errors:
                self.add_error(field, "Say where.")
        if given.get("path") and not all(path_of(given["path"]).removeprefix(PAYLOAD).split("__")):
            self.add_error("path", "The path has an empty part, between two dots or at an end.")
        if given.get("header", "").startswith(PAYLOAD):
            self.add_error("header", f"Headers that begin with {PAYLOAD} cannot be searched.")
        if given.get("status") and given["status"] not in ("scheduled", "dead") and not given.get("group"):
            self.add_error(
                "group",
                f"{TITLES[given['status']]} is the status of a message for one group: name the group.",
            )
        if not given.get("topic") and "topic" not in self.errors and any(given.values()):
            asked = [str(self[name].label) for name, value in given.items() if value and name != "order"]
            if asked:
                self.add_error("topic", "Name the topic: without one only the newest of all are listed.")
        return given

    @property
    def is_newest_first(self) -> bool:
        return self.cleaned_data.get("order") != OLDEST and self.cleaned_data.get("status") not in BY_DUE_TIME

    def question(self) -> dict[str, Any]:
        """Return the arguments of ``inspect.messages``, except ``filter`` and the arguments for paging."""
        given = self.cleaned_data
        names_ = ("topic", "group", "status", "key", "id", "kind", "after", "before")
        asked = {name: given[name] or None for name in names_}
        return {**asked, "newest_first": self.is_newest_first}

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
        return None if test is None else lambda message: bool(test(message))
