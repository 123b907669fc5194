"""The operation that publishes a message by hand."""

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
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ... import conf
from ...browse.masking import Withheld
from ...exceptions import NotRegistered
from ...inspect import Cut
from ...messages import OutgoingMessage
from ...models import Message
from ...policy import names
from ...policy.durations import due_of
from ...policy.ids import uuid7
from ...service import publish
from ...service.registration import is_registered
from ...store import offsets
from ...store.connection import session
from ..base.display import Text, local_time, printable, problem_text, seconds_text
from ..base.forms import Moment
from ..base.operations import Data, Operation, Plan, Refused, Result, Subject
from ..base.urls import allowed_url, may
from . import payloads
from .masking import masked_for, sees_all
from .payload_text import BASE64, HEX, JSON_TEXT, TEXT, parse, parse_json
from .timeline import read

ENCODINGS = (
    (JSON_TEXT, gettext_lazy("JSON")),
    (TEXT, gettext_lazy("Bytes: this text in UTF-8")),
    (BASE64, gettext_lazy("Bytes: in base64")),
    (HEX, gettext_lazy("Bytes: in hexadecimal")),
)
GROUPS = 200
REMEMBERED, PUBLISHED = 20, "mqueue-published"
"""The session keeps the last ``REMEMBERED`` messages that forms have published. A form that is sent twice then stores
nothing the second time, even if its message is already done and deleted."""


def _text(label: Text, **kwargs: Any) -> forms.CharField:
    return forms.CharField(required=False, strip=False, label=label, **kwargs)


def _area(rows: int) -> forms.Textarea:
    return forms.Textarea(
        {"rows": rows, "cols": 80, "class": "vLargeTextField mqueue-editor", "spellcheck": "false"}
    )


def _headers(text: str) -> dict[str, Any] | None:
    found = parse_json(text) if text.strip() else None
    if found is not None and not isinstance(found, dict):
        raise ValidationError(_("Headers are a JSON object: names and values in braces."))
    return found


class PublishForm(forms.Form):
    """The arguments of ``publish``. The cleaned data has the message as ``outgoing``."""

    topic = _text(gettext_lazy("Topic"), widget=forms.TextInput({"class": "vTextField"}))
    key = _text(
        gettext_lazy("Key"),
        help_text=gettext_lazy(
            "Messages of one key are one partition. Only strict handlers get them in order. Empty: without an order."
        ),
    )
    id = _text(
        gettext_lazy("Id"),
        help_text=gettext_lazy(
            "While this id is in the topic, another message with it is not stored. The id is generated for this form,"
            " so the form publishes only once."
        ),
        widget=forms.TextInput({"class": "vTextField"}),
    )
    kind = _text(gettext_lazy("Kind"))
    payload_format = forms.ChoiceField(choices=ENCODINGS, label=gettext_lazy("Payload format"))
    payload = _text(gettext_lazy("Payload"), widget=_area(12))
    headers = _text(
        gettext_lazy("Headers"), widget=_area(3), help_text=gettext_lazy("A JSON object, or nothing.")
    )
    group = _text(gettext_lazy("For group"), help_text=gettext_lazy("Empty: for all groups."))
    priority = forms.IntegerField(
        required=False,
        min_value=names.PRIORITY_MIN,
        max_value=names.PRIORITY_MAX,
        label=gettext_lazy("Priority"),
        help_text=gettext_lazy(
            "Messages with a higher priority are delivered first. Not together with a key."
        ),
    )
    delay = forms.FloatField(
        required=False, label=gettext_lazy("In … seconds"), help_text=gettext_lazy("Not delivered before.")
    )
    at = Moment(
        required=False,
        label=gettext_lazy("Or at"),
        help_text=gettext_lazy("Not delivered before, by the database's clock."),
    )

    def clean(self) -> dict[str, Any]:
        """Check the payload in the format ``payload_format``, then the headers, then the whole message."""
        given = self.cleaned_data
        try:
            if given.get("payload_format"):
                given["payload_value"] = parse(given["payload_format"], given.get("payload", ""))
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
            headers=given["headers_value"], group=given["group"] or None, priority=given["priority"] or 0,
        )  # fmt: skip
        if given["topic"] in conf.repeats:
            self.add_error(
                "topic", _("This topic holds the steps of work items. Change the work items instead.")
            )
            return
        try:
            publish.check(given["topic"], outgoing)
            due_of(given["delay"], given["at"])
        except (TypeError, ValueError) as problem:
            word = str(problem).partition(" ")[0]
            self.add_error(word if word in self.fields else None, printable(str(problem)))
            return
        if outgoing.group is not None and not is_registered(given["topic"], outgoing.group, conf.database()):
            self.add_error("group", problem_text(NotRegistered(given["topic"], outgoing.group)))
        given["outgoing"] = outgoing


class PublishMessage(Operation):
    """Publish a message by hand.

    ``?topic=`` starts a new message. ``?copy_of=`` (an offset) fills the form with the parts of that message that the
    user may see.
    """

    route, url_name = "publish", "publish_message"
    title = gettext_lazy("Publish a message")
    form_class = PublishForm
    flag = ADDITION
    next_button = gettext_lazy("Preview")
    template_name = "admin/django_mqueue/publish.html"
    published: int | None = None
    """The offset of the message, after it was published."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        initial = {"payload_format": JSON_TEXT, "topic": request.GET.get("topic", ""), "id": uuid7()}
        if copy_of := request.GET.get("copy_of"):
            try:
                initial |= self._copied(copy_of)
            except Refused as problem:
                self.prompt = str(problem)
        return self._show_form(PublishForm(initial=initial))

    def _copied(self, word: str) -> dict[str, Any]:
        """Return the initial values for a copy of a message. Raises ``Refused`` if the message cannot be copied."""
        if not may(self.request, "view_message"):
            raise Refused(_("You may not see messages, so no message is copied."))
        found = read(self.request, word)
        if found is None:
            raise Refused(_("There is no message %(offset)s to copy.") % {"offset": printable(word)[:20]})
        message = masked_for(self.request, found.message)
        payload = message.payload
        if isinstance(payload, (Cut, Withheld)) or message.size > payloads.BODY_BYTES:
            text = _("The payload of message %(offset)s is too long, or hidden: it was not copied.")
            raise Refused(text % {"offset": word})
        if not sees_all(self.request, found.stored_in):
            self.prompt = _("Parts of this copy may be masked: they would be published in their masked form.")
        is_bytes = isinstance(payload, bytes)
        text = base64.b64encode(payload).decode() if is_bytes else printable(payloads.pretty(payload))
        return {
            "topic": found.topic,
            "key": message.key or "",
            "kind": message.kind,
            "payload_format": BASE64 if is_bytes else JSON_TEXT,
            "payload": text,
            "headers": printable(payloads.pretty(message.headers)) if message.headers else "",
            "group": message.target or "",
            "priority": message.priority or None,
        }

    def plan(self, data: Data) -> Plan:
        outgoing, topic = data["outgoing"], data["topic"]
        if self._mark(data) in self._marks():
            return Plan(str(_ALREADY_PUBLISHED), is_empty=True)
        if outgoing.group:
            found = offsets.registration(conf.database(), outgoing.group, topic)
            groups = [(outgoing.group, found is not None and found.paused)]
        else:
            with session.raises_not_migrated(conf.database()):
                registered = offsets.registrations(conf.database(), topic)
            groups = [(group, one.paused) for group, one in registered.items()][:GROUPS]
        undo = _("The message is stored in the topic. This cannot be undone.")
        if data["delay"] or data["at"]:
            undo = _("The message is stored in the topic. Until it is due, it can be cancelled.")
        consequences = [undo, _receivers(groups), *_when(data, [paused for _name, paused in groups])]
        if outgoing.key is None:
            consequences.append(_("It has no key: no order is guaranteed."))
        value = outgoing.payload
        size = publish.check(topic, outgoing)
        if isinstance(value, bytes):
            payload = payloads.whole(value[: payloads.BODY_BYTES], len(value), "bytes")
        else:
            payload = payloads.of_value(value, size)
        facts = [
            (_("Topic"), topic), (_("Key"), outgoing.key or "-"), (_("Id"), outgoing.id or _("a new one")),
            (_("Kind"), outgoing.kind or "-"), (_("Priority"), str(outgoing.priority or "-")),
            (_("Size"), payloads.size(size)),
        ]  # fmt: skip
        return Plan(
            _("Publish this message to topic %(topic)s?") % data,
            consequences,
            button=_("Publish"),
            context={
                "facts": [(label, printable(value)) for label, value in facts],
                "headers": payloads.document(outgoing.headers),
                "payload": payload,
            },
        )

    def perform(self, data: Data) -> Result:
        outgoing, topic = data["outgoing"], data["topic"]
        if self._mark(data) in self._marks():
            return Result(str(_ALREADY_PUBLISHED), level=messages.WARNING)
        published = publish.publish(
            topic, outgoing.payload, key=outgoing.key, id=outgoing.id, kind=outgoing.kind, headers=outgoing.headers,
            group=outgoing.group, delay=data["delay"], at=data["at"], priority=outgoing.priority,
            require_transaction=False, using=conf.database(),
        )  # fmt: skip
        self.request.session[PUBLISHED] = [*self._marks(), self._mark(data)][-REMEMBERED:]
        self.published = published.offset
        if not published.created:
            return Result(str(_ALREADY_PUBLISHED), level=messages.WARNING)
        text = _("Message %(id)s was published to topic %(topic)s, at offset %(offset)s.")
        return Result(text % {"id": published.id, "topic": topic, "offset": published.offset})

    def subject(self, data: Data) -> Subject:
        return Subject(Message, "", f"{data['topic']}: {data['id']}")

    def back(self, data: Data | None) -> str | None:
        if self.published is not None:
            return allowed_url(self.request, "message_change", self.published)
        return allowed_url(self.request, "message_changelist", topic=data["topic"] if data else None)

    def _mark(self, data: Data) -> str:
        """Return the mark of this message in the session. A form without an id publishes another message each time."""
        message = [data["topic"], data["key"], data["group"], data["id"] or uuid7()]
        return blake2b(json.dumps(message).encode(), digest_size=12).hexdigest()

    def _marks(self) -> list[str]:
        found: list[str] = self.request.session.get(PUBLISHED, [])
        return found


_ALREADY_PUBLISHED = gettext_lazy(
    "A message with this id was already published: nothing was stored. To publish another message, give it another id."
)


def _receivers(groups: list[tuple[str, bool]]) -> str:
    """Return the sentence about the groups of a message, which are (name, is paused)."""
    if not groups:
        return _(
            "No group is registered for the topic. No group receives the message until one is registered, and until"
            " then nothing of the topic is deleted. Check the topic's name."
        )
    text = ngettext(
        "It is for %(count)s group: %(groups)s.", "It is for %(count)s groups: %(groups)s.", len(groups)
    )
    if len(groups) >= GROUPS:
        text = _("It is for %(count)s groups or more: %(groups)s.")
    names_ = [_("%(group)s (paused)") % {"group": name} if paused else name for name, paused in groups]
    return text % {"count": len(groups), "groups": ", ".join(map(printable, names_))}


def _when(data: Data, paused: list[bool]) -> list[str]:
    """Return the sentences about the time of delivery. ``paused``: for each group of the message, if it is paused."""
    if data["delay"]:
        text = _("It is delivered no earlier than %(time)s after it was published.")
        return [text % {"time": seconds_text(data["delay"])}]
    if data["at"]:
        text = _("It is delivered no earlier than %(time)s.")
        return [text % {"time": local_time(data["at"])}]
    if not paused:
        return []
    if all(paused):
        return [
            ngettext(
                "It is not delivered while the group is paused.",
                "It is not delivered while they are paused.",
                len(paused),
            )
        ]
    if any(paused):
        return [_("It can be delivered at once, but not to paused groups.")]
    return [_("It can be delivered at once.")]
