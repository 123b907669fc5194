"""The operation that publishes a message by hand."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse

from ... import conf
from ...browse.timeline import groups_of, is_registered
from ...exceptions import NotRegistered
from ...inspect import Cut
from ...messages import OutgoingMessage
from ...models import Message
from ...policy.durations import due_of
from ...policy.encoding import JSON
from ...policy.ids import uuid7
from ...service import publish
from ..base.audit import ADDITION, Subject
from ..base.display import printable
from ..base.links import address
from ..base.moments import Moment
from ..base.operations import Asked, Done, Operation, Plan, Refused
from ..base.views import may
from . import payloads
from .masking import sees_all, shown
from .timeline import read

TEXT, BASE64, HEX = "text", "base64", "hex"
ENCODINGS = (
    (JSON, "JSON"),
    (TEXT, "Bytes: this text in UTF-8"),
    (BASE64, "Bytes: in base64"),
    (HEX, "Bytes: in hexadecimal"),
)
COPIED = 262_144
"""Maximum bytes of a payload that is copied into a form."""
GROUPS = 200
REMEMBERED, PUBLISHED = 20, "mqueue-published"
"""The session keeps the last ``REMEMBERED`` messages that forms have published. A form that is sent twice then stores
nothing the second time, even if its message is already done and deleted."""


def parsed(text: str) -> Any:
    """Return the JSON value of a field. Raises ``ValidationError`` with the position of the error."""
    try:
        return json.loads(text, parse_constant=_not_json)
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise ValidationError(f"This is not JSON: {problem.msg} at {where}.") from None
    except ValueError as problem:
        raise ValidationError(f"This is not JSON: {problem}") from None
    except RecursionError:
        raise ValidationError("This is nested too deeply.") from None


def _not_json(name: str) -> Any:
    raise ValueError(f"{name} is not a value of JSON")


def _text(label: str, **kwargs: Any) -> forms.CharField:
    return forms.CharField(required=False, strip=False, label=label, **kwargs)


def _area(rows: int) -> forms.Textarea:
    return forms.Textarea(
        {"rows": rows, "cols": 80, "class": "vLargeTextField mqueue-code", "spellcheck": "false"}
    )


class PublishForm(forms.Form):
    """The arguments of ``publish``. The cleaned data has the message as ``outgoing``."""

    topic = _text("Topic", widget=forms.TextInput({"class": "vTextField"}))
    key = _text("Key", help_text="Messages of one key are delivered in order. Empty: without an order.")
    id = _text(
        "Id",
        help_text="While this id is in the topic, another message with it is not stored. The id is generated for"
        " this form, so the form publishes only once.",
        widget=forms.TextInput({"class": "vTextField"}),
    )
    kind = _text("Kind")
    payload_is = forms.ChoiceField(choices=ENCODINGS, label="Payload is")
    payload = _text("Payload", widget=_area(12))
    headers = _text("Headers", widget=_area(3), help_text="A JSON object, or nothing.")
    group = _text("For group", help_text="Empty: for all groups.")
    delay = forms.FloatField(required=False, label="In … seconds", help_text="Delivered no earlier.")
    at = Moment(required=False, label="Or at", help_text="Delivered no earlier, by the database's clock.")

    def clean_payload(self) -> Any:
        """Return the text unchecked. ``clean`` checks it, because the field ``payload_is`` names its format."""
        return self.cleaned_data["payload"]

    def clean(self) -> dict[str, Any]:
        given = self.cleaned_data
        for field in ("payload", "headers"):
            try:
                given[f"{field}_value"] = getattr(self, f"_{field}")(given.get(field, ""))
            except ValidationError as problem:
                self.add_error(field, problem)
        if not self.errors:
            self._check(given)
        return given

    def _payload(self, text: str) -> Any:
        how = self.cleaned_data.get("payload_is")
        if how == TEXT:
            try:
                return text.replace("\r\n", "\n").encode()
            except UnicodeEncodeError:
                raise ValidationError("This text cannot be encoded in UTF-8.") from None
        if how == BASE64:
            try:
                return base64.b64decode("".join(text.split()), validate=True)
            except (ValueError, binascii.Error) as problem:
                raise ValidationError(f"This is not base64: {problem}.") from None
        if how == HEX:
            try:
                return bytes.fromhex(text)
            except ValueError as problem:
                raise ValidationError(f"This is not hexadecimal: {problem}.") from None
        return parsed(text)

    def _headers(self, text: str) -> dict[str, Any] | None:
        found = parsed(text) if text.strip() else None
        if found is not None and not isinstance(found, dict):
            raise ValidationError("Headers are a JSON object: names and values in braces.")
        return found

    def _check(self, given: dict[str, Any]) -> None:
        """Check the message as ``publish`` does, and that the group is registered. Show each error at its field."""
        outgoing = OutgoingMessage(
            given["payload_value"], key=given["key"] or None, id=given["id"] or None, kind=given["kind"],
            headers=given["headers_value"], group=given["group"] or None,
        )  # fmt: skip
        try:
            publish.check(given["topic"], outgoing)
            due_of(given["delay"], given["at"])
        except (TypeError, ValueError) as problem:
            word = str(problem).partition(" ")[0]
            self.add_error(word if word in self.fields else None, printable(str(problem)))
            return
        if outgoing.group is not None and not is_registered(conf.database(), given["topic"], outgoing.group):
            self.add_error("group", printable(str(NotRegistered(given["topic"], outgoing.group))))
        given["outgoing"] = outgoing


class PublishMessage(Operation):
    """Publish a message by hand.

    ``?topic=`` starts a new message. ``?copy_of=`` (an offset) fills the form with the parts of that message that the
    user may see.
    """

    route, url_name, rights = "publish", "publish_message", ("publish_message",)
    title = "Publish a message"
    form_class = PublishForm
    flag = ADDITION
    next_button = "Look at it"
    template_name = "admin/django_mqueue/publish.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        initial: dict[str, Any] = {"payload_is": JSON, "topic": request.GET.get("topic", "")}
        if request.GET.get("copy_of"):
            try:
                initial |= self._copied(request.GET["copy_of"])
            except Refused as problem:
                form = PublishForm(initial={**initial, "id": uuid7()})
                return self._unfilled(form, str(problem))
        return self._asked(PublishForm(initial={**initial, "id": uuid7()}))

    def _unfilled(self, form: forms.Form, problem: str) -> HttpResponse:
        context = self.get_context_data(title=self.title, form=form, back=self.back(None), prompt=problem)
        return self.render_to_response(context)

    def _copied(self, word: str) -> dict[str, Any]:
        """Return the initial values for a copy of a message. Raises ``Refused`` if the message cannot be copied."""
        if not may(self.request, "view_message"):
            raise Refused("You may not see messages, so no message is copied.")
        found = read(self.request, word)
        if found is None:
            raise Refused(f"There is no message {printable(word)[:20]} to copy.")
        message = shown(self.request, found.message)
        payload = message.payload
        if isinstance(payload, (Cut, payloads.Withheld)) or message.size > COPIED:
            raise Refused(f"The payload of message {word} is too long, or hidden: it was not copied.")
        if not sees_all(self.request, found.stored_in):
            self.prompt = "Parts of this copy may be masked: they would be published in their masked form."  # type: ignore[misc]
        is_bytes = isinstance(payload, bytes)
        return {
            "topic": found.topic,
            "key": message.key or "",
            "kind": message.kind,
            "payload_is": BASE64 if is_bytes else JSON,
            "payload": base64.b64encode(payload).decode()
            if is_bytes
            else printable(payloads.pretty(payload)),
            "headers": printable(payloads.pretty(message.headers)) if message.headers else "",
            "group": message.target or "",
        }

    def plan(self, asked: Asked) -> Plan:
        outgoing, topic = asked["outgoing"], asked["topic"]
        if self._mark(asked) in self._marks():
            return Plan(_AGAIN, is_empty=True)
        groups = groups_of(conf.database(), topic, GROUPS)
        if outgoing.group:
            groups = [(outgoing.group, dict(groups).get(outgoing.group, False))]
        who = [f"{group} (paused)" if paused else group for group, paused in groups]
        gets = f"It is for {_count(len(who))}: {', '.join(map(printable, who))}." if who else _NOBODY
        means = [gets, *_when(asked, [paused for _, paused in groups])]
        if outgoing.key is None:
            means.append("It has no key: no order is guaranteed.")
        value = outgoing.payload
        size = publish.check(topic, outgoing)
        text = (
            payloads.whole(value[: payloads.BODY_BYTES], len(value), "bytes")
            if isinstance(value, bytes)
            else None
        )
        facts = [
            ("Topic", topic), ("Key", outgoing.key or "-"), ("Id", outgoing.id or "a new one"),
            ("Kind", outgoing.kind or "-"), ("Size", f"{size:,} byte{'' if size == 1 else 's'}"),
        ]  # fmt: skip
        return Plan(
            f"Publish this message to topic {topic}?",
            means,
            button="Yes, publish it",
            context={
                "facts": [(label, printable(value)) for label, value in facts],
                "headers": payloads.document(outgoing.headers),
                "payload": text or payloads.of_value(value, size),
            },
        )

    def perform(self, asked: Asked, carried: Mapping[str, Any]) -> Done:
        outgoing, topic = asked["outgoing"], asked["topic"]
        if self._mark(asked) in self._marks():
            return Done(_AGAIN, level=messages.WARNING)
        published = publish.publish(
            topic, outgoing.payload, key=outgoing.key, id=outgoing.id, kind=outgoing.kind, headers=outgoing.headers,
            group=outgoing.group, delay=asked["delay"], at=asked["at"], using=conf.database(),
        )  # fmt: skip
        self.request.session[PUBLISHED] = [*self._marks(), self._mark(asked)][-REMEMBERED:]
        self.published = published.offset
        if not published.created:
            return Done(_AGAIN, level=messages.WARNING)
        return Done(
            f"Message {published.id} was published to topic {topic}, at offset {published.offset}.", 1
        )

    def subject(self, asked: Asked) -> Subject:
        return Subject(Message, "", f"{asked['topic']}: {asked['id']}")

    def back(self, asked: Asked | None) -> str:
        if not may(self.request, "view_message"):
            return self.home()
        offset = getattr(self, "published", None)
        if offset is not None:
            return address(self.request, "message_change", offset)
        topic = asked["topic"] if asked else None
        return address(self.request, "message_changelist", topic=topic)

    def _mark(self, asked: Asked) -> str:
        """Return the session's mark for this message. A form without an id publishes another message each time."""
        place = [asked["topic"], asked["key"], asked["group"], asked["id"] or uuid7()]
        return blake2b(json.dumps(place).encode(), digest_size=12).hexdigest()

    def _marks(self) -> list[str]:
        found: list[str] = self.request.session.get(PUBLISHED, [])
        return found


_AGAIN = (
    "A message with this id was already published: nothing was stored. To publish another message, give it another"
    " id."
)
_NOBODY = (
    "No group is registered for the topic. No group receives the message until one is registered, and until then"
    " nothing of the topic is deleted. Check the topic's name."
)


def _count(groups: int) -> str:
    return f"{groups} group{'' if groups == 1 else 's'}" if groups < GROUPS else f"{GROUPS} groups or more"


def _when(asked: Asked, paused: list[bool]) -> list[str]:
    """Return the sentences about the time of delivery. ``paused``: for each group of the message, if it is paused."""
    if asked["delay"]:
        return [f"It is delivered no earlier than {asked['delay']:g} seconds after it was published."]
    if asked["at"]:
        return [f"It is delivered no earlier than {asked['at']:%Y-%m-%d %H:%M:%S %Z}."]
    if not paused:
        return []
    if all(paused):
        return [
            "It is not delivered while they are paused."
            if len(paused) > 1
            else "It is not delivered while the group is paused."
        ]
    return [f"It can be delivered at once{', but not to paused groups' if any(paused) else ''}."]
