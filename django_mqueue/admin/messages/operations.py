"""The operations that publish a message by hand and deliver a message now."""

from __future__ import annotations

import base64
import json
from hashlib import blake2b
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse

from ... import conf, inspect
from ...browse.operations import MOVABLE
from ...browse.timeline import groups_of, is_registered
from ...exceptions import NotRegistered
from ...inspect import Cut, Inspected
from ...messages import OutgoingMessage
from ...models import Message
from ...policy import names
from ...policy.durations import due_of
from ...policy.ids import uuid7
from ...policy.message_query import SCHEDULED
from ...service import publish
from ...service.registration import topic_limit
from ..base.display import printable
from ..base.forms import OFFSET_MAX, Moment, name_field
from ..base.operations import Data, Operation, Plan, Refused, Result, Subject, noticed
from ..base.urls import allowed_url, may
from . import payloads
from .masking import sees_all, shown
from .payload_text import BASE64, HEX, JSON_TEXT, TEXT, parse, parse_json
from .timeline import read

ENCODINGS = (
    (JSON_TEXT, "JSON"),
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


def _text(label: str, **kwargs: Any) -> forms.CharField:
    return forms.CharField(required=False, strip=False, label=label, **kwargs)


def _area(rows: int) -> forms.Textarea:
    return forms.Textarea(
        {"rows": rows, "cols": 80, "class": "vLargeTextField mqueue-code", "spellcheck": "false"}
    )


def _headers(text: str) -> dict[str, Any] | None:
    found = parse_json(text) if text.strip() else None
    if found is not None and not isinstance(found, dict):
        raise ValidationError("Headers are a JSON object: names and values in braces.")
    return found


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
    payload_is = forms.ChoiceField(choices=ENCODINGS, label="Payload format")
    payload = _text("Payload", widget=_area(12))
    headers = _text("Headers", widget=_area(3), help_text="A JSON object, or nothing.")
    group = _text("For group", help_text="Empty: for all groups.")
    delay = forms.FloatField(required=False, label="In … seconds", help_text="Delivered no earlier.")
    at = Moment(required=False, label="Or at", help_text="Delivered no earlier, by the database's clock.")

    def clean(self) -> dict[str, Any]:
        """Check the payload in the format ``payload_is``, then the headers, then the whole message."""
        given = self.cleaned_data
        try:
            if given.get("payload_is"):
                given["payload_value"] = parse(given["payload_is"], given.get("payload", ""))
        except ValidationError as problem:
            self.add_error("payload", problem)
        try:
            given["headers_value"] = _headers(given.get("headers", ""))
        except ValidationError as problem:
            self.add_error("headers", problem)
        if not self.errors:
            self._check(given)
        return given

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

    route, url_name = "publish", "publish_message"
    title = "Publish a message"
    form_class = PublishForm
    flag = ADDITION
    next_button = "Preview"
    template_name = "admin/django_mqueue/publish.html"
    published: int | None = None
    """The offset of the message, after it was published."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        initial = {"payload_is": JSON_TEXT, "topic": request.GET.get("topic", ""), "id": uuid7()}
        if copy_of := request.GET.get("copy_of"):
            try:
                initial |= self._copied(copy_of)
            except Refused as problem:
                self.prompt = str(problem)
        return self._show_form(PublishForm(initial=initial))

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
            self.prompt = "Parts of this copy may be masked: they would be published in their masked form."
        is_bytes = isinstance(payload, bytes)
        text = base64.b64encode(payload).decode() if is_bytes else printable(payloads.pretty(payload))
        return {
            "topic": found.topic,
            "key": message.key or "",
            "kind": message.kind,
            "payload_is": BASE64 if is_bytes else JSON_TEXT,
            "payload": text,
            "headers": printable(payloads.pretty(message.headers)) if message.headers else "",
            "group": message.target or "",
        }

    def plan(self, data: Data) -> Plan:
        outgoing, topic = data["outgoing"], data["topic"]
        if self._mark(data) in self._marks():
            return Plan(_AGAIN, is_empty=True)
        groups = groups_of(conf.database(), topic, GROUPS)
        if outgoing.group:
            groups = [(outgoing.group, dict(groups).get(outgoing.group, False))]
        who = [f"{group} (paused)" if paused else group for group, paused in groups]
        gets = f"It is for {_count(len(who))}: {', '.join(map(printable, who))}." if who else _NOBODY
        undo = "This cannot be undone."
        if data["delay"] or data["at"]:
            undo = "Until it is due, it can be cancelled, but not in the admin."
        means = [
            f"The message is stored in the topic. {undo}",
            gets,
            *_when(data, [paused for _, paused in groups]),
        ]
        if outgoing.key is None:
            means.append("It has no key: no order is guaranteed.")
        value = outgoing.payload
        size = publish.check(topic, outgoing)
        if isinstance(value, bytes):
            payload = payloads.whole(value[: payloads.BODY_BYTES], len(value), "bytes")
        else:
            payload = payloads.of_value(value, size)
        facts = [
            ("Topic", topic), ("Key", outgoing.key or "-"), ("Id", outgoing.id or "a new one"),
            ("Kind", outgoing.kind or "-"), ("Size", payloads.size(size)),
        ]  # fmt: skip
        return Plan(
            f"Publish this message to topic {topic}?",
            means,
            button="Publish",
            context={
                "facts": [(label, printable(value)) for label, value in facts],
                "headers": payloads.document(outgoing.headers),
                "payload": payload,
            },
        )

    def perform(self, data: Data) -> Result:
        outgoing, topic = data["outgoing"], data["topic"]
        if self._mark(data) in self._marks():
            return Result(_AGAIN, level=messages.WARNING)
        published = publish.publish(
            topic, outgoing.payload, key=outgoing.key, id=outgoing.id, kind=outgoing.kind, headers=outgoing.headers,
            group=outgoing.group, delay=data["delay"], at=data["at"], using=conf.database(),
        )  # fmt: skip
        self.request.session[PUBLISHED] = [*self._marks(), self._mark(data)][-REMEMBERED:]
        self.published = published.offset
        if not published.created:
            return Result(_AGAIN, level=messages.WARNING)
        return Result(f"Message {published.id} was published to topic {topic}, at offset {published.offset}.")

    def subject(self, data: Data) -> Subject:
        return Subject(Message, "", f"{data['topic']}: {data['id']}")

    def back(self, data: Data | None) -> str | None:
        if self.published is not None:
            url = allowed_url(self.request, "message_change", self.published)
        else:
            url = allowed_url(self.request, "message_changelist", topic=data["topic"] if data else None)
        return url

    def _mark(self, data: Data) -> str:
        """Return the mark of this message in the session. A form without an id publishes another message each time."""
        place = [data["topic"], data["key"], data["group"], data["id"] or uuid7()]
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


def _when(data: Data, paused: list[bool]) -> list[str]:
    """Return the sentences about the time of delivery. ``paused``: for each group of the message, if it is paused."""
    if data["delay"]:
        return [f"It is delivered no earlier than {data['delay']:g} seconds after it was published."]
    if data["at"]:
        return [f"It is delivered no earlier than {data['at']:%Y-%m-%d %H:%M:%S %Z}."]
    if not paused:
        return []
    if all(paused):
        return [
            "It is not delivered while they are paused."
            if len(paused) > 1
            else "It is not delivered while the group is paused."
        ]
    return [f"It can be delivered at once{', but not to paused groups' if any(paused) else ''}."]


class HurryForm(forms.Form):
    """``group``: the group that gets the message earlier; empty if the message is scheduled for all groups."""

    topic = name_field("topic", topic_limit(), widget=forms.HiddenInput)
    group = name_field("group", names.GROUP_MAX, required=False, widget=forms.HiddenInput)
    offset = forms.IntegerField(min_value=1, max_value=OFFSET_MAX, widget=forms.HiddenInput)


class HurryMessage(Operation):
    """Deliver a message now: a scheduled message becomes due, any other becomes the next message of its key."""

    route, url_name = "hurry", "hurry_message"
    title = "Deliver a message now"
    form_class = HurryForm

    def plan(self, data: Data) -> Plan:
        message = f"message {data['offset']} of topic {data['topic']}"
        if _found(data).status == SCHEDULED:
            means = ["The message is due at once, instead of at its time. This cannot be undone."]
        else:
            means = [
                "The group receives it as the next message of its key, before all messages that are already due. This"
                " cannot be undone.",
                "A strict handler keeps the order: for it, only the wait for a retry ends.",
            ]
            message += f" to group {data['group']}"
        return Plan(f"Deliver {message} now?", [*means, noticed(data["topic"])], button="Deliver now")

    def perform(self, data: Data) -> Result:
        status = _found(data).status
        moved = inspect.send_to_front(
            data["topic"], group=data["group"] or None, offset=data["offset"], status=status, limit=1
        )
        if not moved:
            raise Refused("The message was already due. Nothing was changed.")
        where = (
            "due now"
            if status == SCHEDULED
            else f"due now, as the next message of its key for group {data['group']}"
        )
        return Result(f"Message {data['offset']} of topic {data['topic']} is {where}.")

    def subject(self, data: Data) -> Subject:
        return Subject(Message, str(data["offset"]), f"{data['topic']}@{data['offset']}")

    def back(self, data: Data | None) -> str | None:
        page = ("message_changelist",) if data is None else ("message_change", data["offset"])
        return allowed_url(self.request, *page)


def _found(data: Data) -> Inspected:
    """Return the message. Raises ``Refused`` if it cannot be delivered now."""
    topic, group, offset = data["topic"], data["group"] or None, data["offset"]
    using = conf.database()
    if group is not None:
        for message in inspect.messages(topic, group=group, offset=offset, payload_limit=1, using=using):
            if message.status in MOVABLE:
                return message
    for message in inspect.messages(topic, status=SCHEDULED, offset=offset, payload_limit=1, using=using):
        if message.target == group:
            return message
    raise Refused("The message no longer waits: it was delivered, or is done, or does not exist.")
