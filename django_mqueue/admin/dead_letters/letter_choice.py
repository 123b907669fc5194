"""The choice of dead letters: a form in the query of a URL, and the queue's ``DeadLetterQuery`` made from it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from ... import conf
from ...policy import names
from ...policy.dead_letter_filter import DeadLetterQuery
from ...policy.durations import moment_ms
from ...policy.errors import is_class
from ...policy.filters import PAYLOAD, filter_of
from ...service.registration import topic_limit
from ..base.links import address
from ..base.moments import Moment
from ..base.operations import Asked
from ..base.subjects import NameField

DEAD_TOPIC_MAX = 128
SELECTED_MOST = 500


class OfLetters(forms.Form):
    """The original topic of dead letters.

    ``dead``: the dead-letter topic, if it is not the topic of the current settings.
    """

    topic = NameField("topic", topic_limit(), widget=forms.HiddenInput)
    dead = NameField("dead", DEAD_TOPIC_MAX, required=False, widget=forms.HiddenInput)


class _Moment(Moment):
    def prepare_value(self, value: Any) -> Any:
        return value.isoformat(timespec="seconds") if isinstance(value, datetime) else value


_CLASS = "The class name, with or without its module: CardDeclined."
_LIKE = "A part of the error's first line; # is any number or id."


class LetterFilter(OfLetters):
    """The filter of dead letters. A dead letter must match all fields that are given.

    ``exact``: ``error`` and ``line`` must be equal, not only similar. The links of the page of errors set it.
    """

    group = NameField("group", names.GROUP_MAX, required=False, label="Group")
    error = forms.CharField(required=False, max_length=200, label="Error class", help_text=_CLASS)
    line = forms.CharField(required=False, max_length=200, strip=False, label="Error like", help_text=_LIKE)
    key = NameField("key", names.KEY_MAX, required=False, label="Key")
    id = NameField("id", names.ID_MAX, required=False, label="Original id")
    kind = forms.CharField(required=False, max_length=names.KIND_MAX, strip=False, label="Kind")
    after = _Moment(required=False, label="Failed from")
    before = _Moment(required=False, label="Failed before")
    path = forms.CharField(required=False, max_length=200, label="Payload path")
    value = forms.CharField(required=False, max_length=500, strip=False, label="is")
    exact = forms.BooleanField(required=False, widget=forms.HiddenInput)

    def clean_path(self) -> str:
        path: str = self.cleaned_data["path"]
        if path and not all(_parts(path)):
            raise ValidationError("A path consists of names separated by dots, as in customer.id")
        return path

    @property
    def query(self) -> dict[str, str]:
        """The fields that are given, for links."""
        return {name: self.data[name] for name in self.fields if self.data.get(name)}

    @property
    def narrowed(self) -> dict[str, str]:
        return {name: value for name, value in self.query.items() if name not in ("topic", "dead", "exact")}


def dead_topic(asked: Asked) -> str:
    return str(asked.get("dead") or conf.dead_letter_topic(asked["topic"]))


def choice(asked: Asked) -> DeadLetterQuery:
    """Return the ``DeadLetterQuery`` for the data of ``LetterFilter``, or of a form with topics and ``offsets``."""
    offsets = asked.get("offsets")
    return DeadLetterQuery(
        asked["topic"],
        dead_topic(asked),
        group=asked.get("group") or None,
        key=asked.get("key") or None,
        id=asked.get("id") or None,
        kind=asked.get("kind") or None,
        name=asked.get("error") or None,
        line=asked.get("line") or None,
        after=_ms(asked.get("after")),
        before=_ms(asked.get("before")),
        test=_test(asked.get("path") or "", asked.get("value") or ""),
        offsets=frozenset(offsets) if offsets is not None else None,
        exact=bool(asked.get("exact") and (asked.get("error") or asked.get("line"))),
    )


def words(asked: Asked, *, logged: bool = False) -> str:
    """Return the choice as a part of a sentence: ``topic orders (group billing, error TimeoutError)``.

    ``named`` in ``asked``: the ids of dead letters that were ticked. ``logged``: leave out values of payloads and texts
    of errors, because readers of the admin's log may not have the right to see them.
    """
    said = [f"ticked: {asked['named']}"] if asked.get("named") else []
    for name, label in (
        ("group", "group"), ("error", "error"), ("line", "error like"), ("key", "key"), ("id", "original id"),
        ("kind", "kind"), ("after", "failed from"), ("before", "failed before"),
    ):  # fmt: skip
        if logged and (name == "line" or (name == "error" and not is_class(asked.get(name) or "X"))):
            said += [f"{label} a text"] * bool(asked.get(name))
        elif value := asked.get(name):
            text = f"{value:%Y-%m-%d %H:%M:%S %Z}" if isinstance(value, datetime) else f"{value}"
            said.append(f"{label} {text}")
    if asked.get("path"):
        said.append(f"payload {asked['path']} = {'a value' if logged else asked.get('value', '')}")
    return f"topic {asked['topic']}" + (f" ({', '.join(said)})" if said else "")


def list_url(request: HttpRequest, asked: Asked | None, was: str = "") -> str:
    """Return the URL of the list from which an operation began. ``was``: the query of that list."""
    if asked is None:
        return address(request, "deadletter_changelist")
    if was:
        return f"{address(request, 'deadletter_list')}?{was}"
    return address(request, "deadletter_list", topic=asked["topic"], dead=asked.get("dead") or None)


def query_text(query: dict[str, Any]) -> str:
    return urlencode(query, errors="replace")


class Offsets(forms.Field):
    """The offsets of the dead letters that were ticked."""

    widget = forms.MultipleHiddenInput
    hidden_widget = forms.MultipleHiddenInput

    def to_python(self, value: Any) -> list[int]:
        given = value if isinstance(value, (list, tuple)) else [value]
        if len(given) > SELECTED_MOST:
            raise ValidationError(
                f"At most {SELECTED_MOST} dead letters at once: use the action for all that match"
            )
        if not all(str(one).isascii() and str(one).isdigit() and len(str(one)) < 19 for one in given):
            raise ValidationError("Dead letters are identified by the numbers of their rows")
        return sorted({int(one) for one in given})


def _parts(path: str) -> list[str]:
    return path.replace("__", ".").split(".")


def _ms(when: datetime | None) -> int | None:
    return None if when is None else moment_ms("moment", when)


def _test(path: str, value: str) -> Any:
    """Return a filter for the payload, or None without a path.

    The form's value is a text. It matches the same text in the payload, or the number, true, false or null that it
    spells. A list or an object matches only as JSON.
    """
    if not path:
        return None
    wanted: set[Any] = {value}
    try:
        read = json.loads(value)
        if isinstance(read, (dict, list)):
            return filter_of({PAYLOAD + "__".join(_parts(path)): read})
        wanted.add(read)
    except (ValueError, RecursionError):
        pass
    return filter_of({PAYLOAD + "__".join(_parts(path)): frozenset(wanted)})
