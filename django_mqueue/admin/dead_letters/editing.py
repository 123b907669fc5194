"""Change one dead letter's payload and headers, show the difference, and redrive it in one transaction."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import conf
from ...browse import bulk_redrive, dead_letters
from ...messages import Edited
from ...models import DeadLetter
from ...policy import encoding
from ...policy.requests import visible as visible_headers
from ...service.actions import Author, BulkRecord
from ...service.redrive import DeadLetterRow
from ..base.forms import parse_number
from ..base.operations import Data, Operation, Plan, Refused, Result, Subject
from ..base.urls import allowed_url, page_url
from ..messages import payload_text, payloads
from . import differences, visible
from .run import successor

FORMS = [
    ("json", gettext_lazy("JSON")),
    ("hex", gettext_lazy("bytes, hexadecimal")),
    ("base64", gettext_lazy("bytes, base64")),
]

CHANGED = {
    (True, False): gettext_lazy(
        "The payload of dead letter %(id)s of topic %(topic)s was changed, and it was redriven to group %(group)s."
    ),
    (False, True): gettext_lazy(
        "The headers of dead letter %(id)s of topic %(topic)s were changed, and it was redriven to group %(group)s."
    ),
    (True, True): gettext_lazy(
        "The payload and the headers of dead letter %(id)s of topic %(topic)s were changed, and it was redriven to"
        " group %(group)s."
    ),
    (False, False): gettext_lazy(
        "Dead letter %(id)s of topic %(topic)s was redriven to group %(group)s. Nothing was changed."
    ),
}
"""The texts of the result. The key: (the payload was changed, the headers were changed)."""


class EditForm(forms.Form):
    """The new payload and headers. ``fingerprint``: of the dead letter that the form has shown."""

    offset = forms.IntegerField(min_value=0, max_value=dead_letters.OFFSET_MAX, widget=forms.HiddenInput)
    fingerprint = forms.CharField(max_length=64, widget=forms.HiddenInput)
    payload_format = forms.ChoiceField(choices=FORMS, label=gettext_lazy("Payload format"))
    payload = forms.CharField(
        label=gettext_lazy("Payload"),
        strip=False,
        required=False,
        widget=forms.Textarea(attrs={"rows": 20, "spellcheck": "false", "class": "mqueue-editor"}),
    )
    headers = forms.CharField(
        label=gettext_lazy("Headers"),
        strip=False,
        help_text=gettext_lazy("A JSON object; {} for no headers."),
        widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false", "class": "mqueue-editor"}),
    )

    def clean_headers(self) -> Any:
        headers = payload_text.parse_json(self.cleaned_data["headers"])
        if not isinstance(headers, dict):
            raise ValidationError(_("Headers must be a JSON object, for example {}."))
        return headers

    def clean(self) -> dict[str, Any]:
        payload_format, text = self.cleaned_data.get("payload_format"), self.cleaned_data.get("payload")
        if payload_format is not None and text is not None:
            try:
                self.cleaned_data["content"] = payload_text.parse(payload_format, text)
            except ValidationError as problem:
                self.add_error("payload", problem)
        return self.cleaned_data


class EditDeadLetter(Operation):
    """The operation that changes and redrives one dead letter: ``?offset=``."""

    route, url_name = "edit", "edit_deadletter"
    title = gettext_lazy("Edit and redrive a dead letter")
    template_name = "admin/django_mqueue/dead_letter_edit.html"
    form_class = EditForm
    next_button = gettext_lazy("Preview")
    dead_letter: DeadLetterRow | None = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            dead_letter = self._read(parse_number(request.GET.get("offset", "")))
            size = len(dead_letter.row["payload"])
            if size > payloads.BODY_BYTES:
                text = _(
                    "The payload is %(size)s bytes; the admin can edit up to %(limit)s bytes. Edit it in Python"
                    " instead."
                )
                raise Refused(text % {"size": f"{size:,}", "limit": f"{payloads.BODY_BYTES:,}"})
        except Refused as problem:
            empty = forms.Form({})
            empty.is_valid()
            return self._refuse(empty, problem)
        payload_format, text = _as_text(dead_letter)
        initial = {
            "offset": dead_letter.row["offset"],
            "fingerprint": bulk_redrive.fingerprint(dead_letter),
            "payload_format": payload_format,
            "payload": text,
            "headers": payloads.pretty(_headers(dead_letter)),
        }
        return self._show_form(EditForm(initial=initial))

    def plan(self, data: Data) -> Plan:
        dead_letter = self._unchanged(data)
        row, group = dead_letter.row, dead_letter.row["failed_group"]
        before = _as_text(dead_letter)
        after = self._new_text(dead_letter, data)
        if not dead_letters.registered(conf.database(), row["original_topic"] or "", {group}):
            text = _("Group %(group)s is no longer registered: no group would receive the message.")
            raise Refused(text % {"group": group})
        headers = (_headers(dead_letter), data["headers"])
        old, new = (payloads.pretty(one) for one in headers)
        found = differences.shown((before[1], old), (after[1], new))
        what = _("Redrive dead letter %(id)s of topic %(topic)s to group %(group)s with this content?")
        if before == after and headers[0] == headers[1]:
            found = []
            what = _(
                "Redrive dead letter %(id)s of topic %(topic)s to group %(group)s with its old content? Nothing was"
                " changed."
            )
        consequences = [
            _("The message is delivered again, and its dead letter is deleted. A redrive cannot be undone."),
            _("It keeps its id, key and kind. Its attempt count starts again at one."),
        ]
        if before[0] != after[0]:
            forms_ = {"before": _name(before[0]), "after": _name(after[0])}
            consequences.insert(0, _("The payload changes from %(before)s to %(after)s.") % forms_)
        if not dead_letter.is_ours:
            consequences.insert(
                0, _("Its kind, headers and encoding could not be read: they are replaced with new ones.")
            )
        return Plan(
            what % _names(dead_letter), consequences, button=_("Redrive"), context={"differences": found}
        )

    def perform(self, data: Data) -> Result:
        dead_letter = self._unchanged(data)
        edited = Edited(data["content"], data["headers"])
        is_payload_changed = self._new_text(dead_letter, data) != _as_text(dead_letter)
        author, row = Author(self.user_name, self.reason), dead_letter.row
        record = BulkRecord(
            author, "redrive", row["original_topic"], row["failed_group"], id=row["original_id"], edited=True
        )
        offset = bulk_redrive.edit(conf.database(), dead_letter, edited, record)
        text = CHANGED[is_payload_changed, edited.headers != _headers(dead_letter)]
        return Result(
            f"{text % _names(dead_letter)} {successor(offset)}".rstrip(),
            logged=differences.logged(dead_letter, edited),
            url=None if offset is None else allowed_url(self.request, "message_change", offset),
        )

    def _new_text(self, dead_letter: DeadLetterRow, data: Data) -> tuple[str, str]:
        """Return the new payload as ``_as_text`` returns the old one. White space between JSON values is no change."""
        body = self._content(dead_letter, data).body
        return payload_text.as_text(body, data["payload_format"] != payload_text.JSON_TEXT)

    def subject(self, data: Data) -> Subject:
        return Subject(DeadLetter, str(data["offset"]), _("Dead letter %(id)s") % {"id": data["offset"]})

    def back(self, data: Data | None) -> str | None:
        dead_letter = self.dead_letter
        if dead_letter is None:
            if data is None:
                return page_url(self.request, "deadletter_changelist")
            return page_url(self.request, "deadletter", offset=data["offset"])
        offset = int(dead_letter.row["offset"])
        if dead_letters.one(conf.database(), offset) is None:
            return page_url(self.request, "deadletter_errors", **visible.topics_of(dead_letter))
        return page_url(self.request, "deadletter", offset=offset)

    def _read(self, offset: int | None) -> DeadLetterRow:
        dead_letter = None if offset is None else dead_letters.one(conf.database(), offset)
        if dead_letter is None:
            raise Refused(_("The dead letter no longer exists: it was redriven or purged."))
        topic = dead_letter.row["original_topic"] or ""
        if not visible.visibility_of(self.request, topic, dead_letter.topic).everything:
            raise PermissionDenied
        self.dead_letter = dead_letter
        return dead_letter

    def _unchanged(self, data: Data) -> DeadLetterRow:
        dead_letter = self._read(data["offset"])
        if bulk_redrive.fingerprint(dead_letter) != data["fingerprint"]:
            raise bulk_redrive.DeadLetterChanged(dead_letter.topic, data["offset"])
        return dead_letter

    def _content(self, dead_letter: DeadLetterRow, data: Data) -> encoding.Encoded:
        """Return the content as it will be stored. Raises ``Refused`` or ``ValueError`` if it cannot be stored."""
        limit = conf.get("MAX_PAYLOAD_BYTES", dead_letter.row["original_topic"])
        try:
            return dead_letter.encode(Edited(data["content"], data["headers"]), limit)
        except TypeError as problem:
            raise Refused(str(problem)) from None


def _names(dead_letter: DeadLetterRow) -> dict[str, str]:
    row = dead_letter.row
    return {"id": row["original_id"], "topic": row["original_topic"], "group": row["failed_group"]}


def _headers(dead_letter: DeadLetterRow) -> dict[str, Any]:
    return visible_headers(dead_letter.metadata["headers"])


def _as_text(dead_letter: DeadLetterRow) -> tuple[str, str]:
    is_bytes = dead_letter.metadata["encoding"] == encoding.BYTES
    return payload_text.as_text(bytes(dead_letter.row["payload"]), is_bytes)


def _name(form: str) -> str:
    return _("JSON") if form == payload_text.JSON_TEXT else _("bytes")
