"""Change one dead letter's payload, show the difference, and redrive it in one transaction."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest

from ... import conf
from ...browse import bulk_redrive, dead_letters
from ...models import DeadLetter
from ...policy import encoding
from ...service.redrive import Letter
from ..base.forms import parse_offset
from ..base.operations import Data, Operation, Plan, Refused, Result, Subject
from ..base.urls import page_url
from ..messages import payload_text
from ..messages.payloads import BODY_BYTES
from . import visible

FORMS = [("json", "JSON"), ("hex", "bytes, hexadecimal"), ("base64", "bytes, base64")]


class EditForm(forms.Form):
    """The new payload. ``seen``: the fingerprint of the dead letter that the form has shown."""

    offset = forms.IntegerField(min_value=0, max_value=dead_letters.END, widget=forms.HiddenInput)
    seen = forms.CharField(max_length=64, widget=forms.HiddenInput)
    how = forms.ChoiceField(choices=FORMS, label="Payload format")
    payload = forms.CharField(
        strip=False,
        required=False,
        widget=forms.Textarea(attrs={"rows": 24, "spellcheck": "false", "class": "mqueue-editor"}),
    )

    def clean(self) -> dict[str, Any]:
        how, text = self.cleaned_data.get("how"), self.cleaned_data.get("payload")
        if how is not None and text is not None:
            try:
                self.cleaned_data["content"] = payload_text.parse(how, text)
            except ValidationError as problem:
                self.add_error("payload", problem)
        return self.cleaned_data


class EditDeadLetter(Operation):
    """The operation that changes and redrives one dead letter: ``?offset=``."""

    route, url_name = "edit", "edit_deadletter"
    title = "Edit and redrive a dead letter"
    template_name = "admin/django_mqueue/dead_letter_edit.html"
    form_class = EditForm
    next_button = "Preview"
    letter: Letter | None = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            letter = self._read(parse_offset(request.GET.get("offset", "")))
            size = len(letter.row["payload"])
            if size > BODY_BYTES:
                raise Refused(
                    f"The payload is {size:,} bytes; the admin can edit up to {BODY_BYTES:,} bytes. Edit it in Python"
                    " instead."
                )
        except Refused as problem:
            empty = forms.Form({})
            empty.is_valid()
            return self._refuse(empty, problem)
        how, text = _as_text(letter)
        initial = {
            "offset": letter.row["offset"], "seen": bulk_redrive.fingerprint(letter), "how": how, "payload": text,
        }  # fmt: skip
        return self._show_form(EditForm(initial=initial))

    def plan(self, data: Data) -> Plan:
        letter = self._unchanged(data)
        before = _as_text(letter)
        after = payload_text.as_text(self._content(letter, data).body, data["how"] != payload_text.JSON_TEXT)
        lines = payload_text.diff(before[1], after[1])
        means = [
            "The message is delivered again, and its dead letter is deleted. A redrive cannot be undone.",
            "It keeps its id, key, kind and headers. Its attempt count starts again at one.",
        ]
        if before[0] != after[0]:
            means.insert(0, f"The payload changes from {_name(before[0])} to {_name(after[0])}.")
        if not letter.is_ours:
            means.insert(
                0, "Its kind, headers and encoding could not be read: they are replaced with new ones."
            )
        row, group = letter.row, letter.row["failed_group"]
        if not dead_letters.registered(conf.database(), row["original_topic"] or "", {group}):
            raise Refused(f"Group {group} is no longer registered: no group would receive the message.")
        is_same = before == after
        end = "with its old payload? Nothing was changed." if is_same else "with this payload?"
        return Plan(
            f"Redrive dead letter {row['original_id']} of topic {row['original_topic']} to group {group} {end}",
            means,
            button="Redrive",
            context={"lines": lines},
        )

    def perform(self, data: Data) -> Result:
        letter = self._unchanged(data)
        self._content(letter, data)
        bulk_redrive.edit(conf.database(), letter, data["content"])
        row = letter.row
        return Result(
            f"The payload of dead letter {row['original_id']} of topic {row['original_topic']} was changed, and it was"
            f" redriven to group {row['failed_group']}."
        )

    def subject(self, data: Data) -> Subject:
        return Subject(DeadLetter, str(data["offset"]), f"Dead letter {data['offset']}")

    def back(self, data: Data | None) -> str | None:
        letter = self.letter
        if letter is None:
            if data is None:
                return page_url(self.request, "deadletter_changelist")
            return page_url(self.request, "deadletter", offset=data["offset"])
        offset = int(letter.row["offset"])
        if dead_letters.one(conf.database(), offset) is None:
            return page_url(self.request, "deadletter_errors", **visible.topics_of(letter))
        return page_url(self.request, "deadletter", offset=offset)

    def _read(self, offset: int | None) -> Letter:
        letter = None if offset is None else dead_letters.one(conf.database(), offset)
        if letter is None:
            raise Refused("The dead letter no longer exists: it was redriven or purged.")
        if not visible.view_of(self.request, letter.row["original_topic"] or "", letter.topic).everything:
            raise PermissionDenied
        self.letter = letter
        return letter

    def _unchanged(self, data: Data) -> Letter:
        letter = self._read(data["offset"])
        if bulk_redrive.fingerprint(letter) != data["seen"]:
            raise bulk_redrive.LetterChanged(letter.topic, data["offset"])
        return letter

    def _content(self, letter: Letter, data: Data) -> encoding.Encoded:
        """Return the payload as it will be stored. Raises ``Refused`` or ``ValueError`` if it cannot be stored."""
        message, size = letter.message, conf.get("MAX_PAYLOAD_BYTES", letter.row["original_topic"])
        try:
            return encoding.encode(data["content"], message.kind, letter.metadata["headers"], size)
        except TypeError as problem:
            raise Refused(str(problem)) from None


def _as_text(letter: Letter) -> tuple[str, str]:
    is_bytes = letter.metadata["encoding"] == encoding.BYTES
    return payload_text.as_text(bytes(letter.row["payload"]), is_bytes)


def _name(form: str) -> str:
    return "JSON" if form == payload_text.JSON_TEXT else "bytes"
