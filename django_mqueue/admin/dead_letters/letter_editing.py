"""Change one dead letter's payload, show the difference, and redrive it in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ... import conf
from ...browse import bulk_redrive, dead_letters
from ...models import DeadLetter
from ...policy import encoding
from ...policy.errors import plain
from ...service.redrive import Letter
from ..base.audit import Subject
from ..base.links import address
from ..base.operations import Asked, Done, Operation, Plan, Refused
from ..messages.payloads import BODY_BYTES
from . import payload_text, visible

HOW = [("json", "JSON"), ("hex", "bytes, hexadecimal"), ("base64", "bytes, base64")]


class Edited(forms.Form):
    offset = forms.IntegerField(min_value=0, max_value=dead_letters.END, widget=forms.HiddenInput)
    seen = forms.CharField(max_length=64, widget=forms.HiddenInput)
    """Fingerprint of the dead letter when the form was filled."""
    how = forms.ChoiceField(choices=HOW, label="The payload is")
    payload = forms.CharField(
        strip=False,
        required=False,
        widget=forms.Textarea(attrs={"rows": 24, "spellcheck": "false", "class": "mqueue-editor"}),
    )

    def clean(self) -> dict[str, Any]:
        how, text = self.cleaned_data.get("how"), self.cleaned_data.get("payload")
        if how is not None and text is not None:
            try:
                self.cleaned_data["content"] = payload_text.read(how, text)
            except payload_text.Unreadable as problem:
                self.add_error("payload", ValidationError(plain(str(problem))))
        return self.cleaned_data


class EditLetter(Operation):
    """The operation that changes one dead letter: ``?offset=``."""

    route, url_name = "edit", "edit_deadletter"
    rights = ("view_deadletter", "redrive_deadletter", "edit_deadletter")
    title = "Change a payload and send it back"
    template_name = "admin/django_mqueue/dead_letter_edit.html"
    form_class = Edited
    next_button: ClassVar[str] = "Show what would change"

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        self.letter: Letter | None = None
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            letter = self._read(request.GET.get("offset", ""))
            how, text = self._text(letter)
        except Refused as problem:
            nothing = forms.Form({})
            nothing.is_valid()
            return self._refused(nothing, problem)
        initial = {
            "offset": letter.row["offset"], "seen": bulk_redrive.fingerprint(letter), "how": how, "payload": text,
        }  # fmt: skip
        return self._asked(Edited(initial=initial))

    def plan(self, asked: Asked) -> Plan:
        letter = self._unchanged(asked)
        before = payload_text.as_text(bytes(letter.row["payload"]), self._is_bytes(letter))
        content = self._content(letter, asked)
        after = payload_text.as_text(content.body, asked["how"] != payload_text.JSON_TEXT)
        lines = payload_text.diff(before[1], after[1])
        means = [
            "It keeps its id, key, kind and headers. Its attempt count starts again at one.",
            "The dead letter is deleted when the message is stored: exactly one of them exists at any time.",
        ]
        if before[0] != after[0]:
            means.insert(0, f"The payload changes from {_name(before[0])} to {_name(after[0])}.")
        if not letter.is_ours:
            means.insert(
                0, "Its kind, headers and encoding could not be read: they are replaced with new ones."
            )
        group = letter.row["failed_group"]
        if not dead_letters.registered(conf.database(), letter.row["original_topic"] or "", {group}):
            raise Refused(f"Group {group} is no longer registered: no group would receive the message.")
        is_same = before == after
        name = f"dead letter {letter.row['original_id']} of topic {letter.row['original_topic']} to group {group}"
        what = (
            f"Send {name} back as it is? Nothing was changed."
            if is_same
            else f"Send {name} back with this payload?"
        )
        return Plan(what, means, button="Yes, send it back", context={"lines": lines, "is_same": is_same})

    def perform(self, asked: Asked, carried: Mapping[str, Any]) -> Done:
        letter = self._unchanged(asked)
        self._content(letter, asked)
        bulk_redrive.edit(conf.database(), letter, asked["content"])
        row = letter.row
        return Done(
            f"The payload of dead letter {row['original_id']} of topic {row['original_topic']} was changed, and it was"
            f" sent back to group {row['failed_group']}.",
            1,
        )

    def subject(self, asked: Asked) -> Subject:
        return Subject(DeadLetter, str(asked["offset"]), f"Dead letter {asked['offset']}")

    def back(self, asked: Asked | None) -> str:
        if asked is None and self.letter is not None:
            asked = {"offset": int(self.letter.row["offset"])}
        if asked is None:
            return address(self.request, "deadletter_changelist")
        if self.letter is not None and dead_letters.one(conf.database(), asked["offset"]) is None:
            topic = self.letter.row["original_topic"]
            dead = None if conf.dead_letter_topic(topic) == self.letter.topic else self.letter.topic
            return address(self.request, "deadletter_errors", topic=topic, dead=dead)
        return address(self.request, "deadletter", offset=asked["offset"])

    def _read(self, offset: str | int) -> Letter:
        text = str(offset)
        is_offset = text.isascii() and text.isdigit() and len(text) < 19
        letter = dead_letters.one(conf.database(), int(text)) if is_offset else None
        if letter is None:
            raise Refused("The dead letter no longer exists: it was sent back, or deleted.")
        if not visible.seen_by(self.request, letter.row["original_topic"] or "", letter.topic).everything:
            raise PermissionDenied
        self.letter = letter
        return letter

    def _unchanged(self, asked: Asked) -> Letter:
        letter = self._read(asked["offset"])
        if bulk_redrive.fingerprint(letter) != asked["seen"]:
            raise bulk_redrive.LetterChanged(letter.topic, asked["offset"])
        return letter

    def _text(self, letter: Letter) -> tuple[str, str]:
        size = len(letter.row["payload"])
        if size > BODY_BYTES:
            raise Refused(
                f"The payload is {size:,} bytes; up to {BODY_BYTES:,} can be changed here. Use redrive(edit=…)."
            )
        return payload_text.as_text(bytes(letter.row["payload"]), self._is_bytes(letter))

    def _is_bytes(self, letter: Letter) -> bool:
        return bool(letter.metadata["encoding"] == encoding.BYTES)

    def _content(self, letter: Letter, asked: Asked) -> encoding.Encoded:
        """Return the payload as it will be stored. Raises ``Refused`` or ``ValueError`` if it cannot be stored."""
        message, size = letter.message, conf.get("MAX_PAYLOAD_BYTES", letter.row["original_topic"])
        try:
            return encoding.encode(asked["content"], message.kind, letter.metadata["headers"], size)
        except TypeError as problem:
            raise Refused(str(problem)) from None


def _name(form: str) -> str:
    return "JSON" if form == payload_text.JSON_TEXT else "bytes"
