"""The filter of dead letters: a form in the query of a URL, and the ``DeadLetterQuery`` that is made from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf
from ...policy import names
from ...policy.dead_letter_filter import DeadLetterQuery
from ...policy.durations import moment_ms
from ...policy.errors import is_class
from ...policy.filters import PAYLOAD, filter_of, payload_path
from ..base import choices
from ..base.display import local_time
from ..base.forms import Moment, name_field, parse_number
from ..base.operations import Data
from ..base.urls import page_url

DEAD_TOPIC_MAX = 128
SELECTED_MOST = 500


class DeadLettersForm(forms.Form):
    """The original topic of dead letters.

    ``dead``: the dead-letter topic, if it is not the topic of the current settings.
    """

    topic = name_field("topic", names.LONG_TOPIC_MAX, widget=forms.HiddenInput)
    dead = name_field("dead", DEAD_TOPIC_MAX, required=False, widget=forms.HiddenInput)


_CLASS = gettext_lazy("The class name, with or without its module: CardDeclined.")
_LIKE = gettext_lazy("A part of the error's first line; # is any number or id.")


class DeadLetterFilter(DeadLettersForm):
    """The filter of dead letters. A dead letter must match all fields that are given.

    ``exact``: ``error`` and ``line`` must be equal, not only similar. The links of the page of errors set it.
    """

    group = name_field(
        "group", names.GROUP_MAX, required=False, label=gettext_lazy("Group"), widget=choices.GROUP_INPUT
    )
    error = forms.CharField(
        required=False, max_length=200, label=gettext_lazy("Error class"), help_text=_CLASS
    )
    line = forms.CharField(
        required=False, max_length=200, strip=False, label=gettext_lazy("Error like"), help_text=_LIKE
    )
    key = name_field("key", names.KEY_MAX, required=False, label=gettext_lazy("Key"))
    id = name_field("id", names.ID_MAX, required=False, label=gettext_lazy("Original id"))
    kind = forms.CharField(required=False, max_length=names.KIND_MAX, strip=False, label=gettext_lazy("Kind"))
    after = Moment(required=False, label=gettext_lazy("Failed from"))
    before = Moment(required=False, label=gettext_lazy("Failed before"))
    path = forms.CharField(required=False, max_length=200, label=gettext_lazy("Payload path"))
    value = forms.CharField(required=False, max_length=500, strip=False, label=gettext_lazy("is"))
    exact = forms.BooleanField(required=False, widget=forms.HiddenInput)

    def clean_path(self) -> str:
        path: str = self.cleaned_data["path"]
        if path and not all(payload_path(path).removeprefix(PAYLOAD).split("__")):
            raise ValidationError(_("A path consists of names separated by dots, as in customer.id"))
        return path

    @property
    def query(self) -> dict[str, str]:
        """The fields that are given, for links."""
        return {name: self.data[name] for name in self.fields if self.data.get(name)}

    @property
    def narrowed(self) -> bool:
        return bool(self.query.keys() - {"topic", "dead", "exact"})


class OffsetsField(forms.Field):
    """The offsets of the dead letters that were selected."""

    widget = forms.MultipleHiddenInput
    hidden_widget = forms.MultipleHiddenInput

    def to_python(self, value: Any) -> list[int]:
        given = value if isinstance(value, (list, tuple)) else [value]
        if len(given) > SELECTED_MOST:
            text = _("Select at most %(limit)s dead letters, or select all that match")
            raise ValidationError(text % {"limit": SELECTED_MOST})
        offsets = {parse_number(str(one)) for one in given}
        if None in offsets:
            raise ValidationError(_("The offset of a dead letter must be a number"))
        return sorted(one for one in offsets if one is not None)


def dead_topic(data: Data) -> str:
    return str(data.get("dead") or conf.dead_letter_topic(data["topic"]))


def query_of(data: Data) -> DeadLetterQuery:
    """Return the query for the data of ``DeadLetterFilter``, or of a form with topics and ``offsets``."""
    given = {name: data.get(name) or None for name in ("group", "key", "id", "kind", "line")}
    offsets, after, before = (data.get(name) for name in ("offsets", "after", "before"))
    return DeadLetterQuery(
        data["topic"],
        dead_topic(data),
        **given,
        name=data.get("error") or None,
        after=None if after is None else moment_ms("moment", after),
        before=None if before is None else moment_ms("moment", before),
        test=_payload_test(data.get("path") or "", data.get("value") or ""),
        offsets=frozenset(offsets) if offsets is not None else None,
        exact=bool(data.get("exact") and (data.get("error") or data.get("line"))),
    )


_WORDS = {
    "group": gettext_lazy("group %(value)s"),
    "error": gettext_lazy("error %(value)s"),
    "line": gettext_lazy("error like %(value)s"),
    "key": gettext_lazy("key %(value)s"),
    "id": gettext_lazy("original id %(value)s"),
    "kind": gettext_lazy("kind %(value)s"),
    "after": gettext_lazy("failed from %(value)s"),
    "before": gettext_lazy("failed before %(value)s"),
}


def words(data: Data, ids: str = "", *, logged: bool = False) -> str:
    """Return the filter as a part of a sentence: ``topic orders (group billing, error TimeoutError)``.

    ``ids``: the dead letters that were selected. ``logged``: leave out values of payloads and texts of errors, because
    readers of the admin's log may not have the permission to see them.
    """
    parts = [_("selected: %(ids)s") % {"ids": ids}] if ids else []
    for name, text in _WORDS.items():
        value = data.get(name)
        is_text = name == "line" or (name == "error" and not is_class(value or "X"))
        if logged and is_text and value:
            value = _("a text")
        elif isinstance(value, datetime):
            value = local_time(value)
        if value:
            parts.append(text % {"value": value})
    if data.get("path"):
        value = _("a value") if logged else data.get("value", "")
        parts.append(_("payload %(path)s = %(value)s") % {"path": data["path"], "value": value})
    if not parts:
        return _("topic %(topic)s") % data
    return _("topic %(topic)s (%(filter)s)") % {**data, "filter": ", ".join(parts)}


def list_url(request: HttpRequest, data: Mapping[str, Any] | None, list_query: str = "") -> str:
    """Return the URL of the list from which an operation began. ``list_query``: the query of that list."""
    if data is None:
        return page_url(request, "deadletter_changelist")
    if list_query:
        return f"{page_url(request, 'deadletter_list')}?{list_query}"
    return page_url(request, "deadletter_list", topic=data["topic"], dead=data.get("dead") or None)


def _payload_test(path: str, value: str) -> Any:
    """Return a filter for the payload, or None without a path.

    The form's value is a text. It matches the same text in the payload, or the number, true, false or null that it
    spells. A list or an object matches only as JSON.
    """
    if not path:
        return None
    wanted: Any = frozenset({value})
    try:
        found = json.loads(value)
        wanted = found if isinstance(found, (dict, list)) else frozenset({value, found})
    except (ValueError, RecursionError):
        pass
    return filter_of({payload_path(path): wanted})
