"""What of a dead letter a user may see: its payload, headers and errors may be masked."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ..policy import encoding
from ..policy.history import Inspected
from ..service import letter_story
from ..service.redrive import Letter
from . import masking, payloads
from .display import printable
from .operations import Asked, Refused


@dataclass(frozen=True)
class Seen:
    """Of a topic's letters by a user: ``everything``, or without the texts of errors and what a mask hides."""

    everything: bool

    def may_ask(self, asked: Asked) -> dict[str, Any]:
        """What was asked for, without what would tell more than the user may see."""
        return dict(asked) if self.everything else {**asked, "line": "", "path": "", "value": ""}

    def check(self, asked: Asked) -> None:
        """Raises ``Refused`` for a choice that the user cannot make."""
        if not self.everything and any(asked.get(name) for name in ("line", "path")):
            raise Refused(
                "Payloads and errors of this topic are masked: to choose by them, you need the right to see the masked"
                " parts."
            )


def seen_by(request: HttpRequest, topic: str, dead_topic: str) -> Seen:
    return Seen(masking.sees_all(request, topic) and masking.sees_all(request, dead_topic))


def shown(request: HttpRequest, letter: Letter) -> Inspected:
    """The letter as the user may see it: a message of its original topic, and of the dead-letter topic, which may have
    masks of their own."""
    message = masking.shown(request, letter_story.as_message(letter))
    return replace(
        masking.shown(request, replace(message, topic=letter.topic)),
        topic=message.topic,
    )


def payload(letter: Letter, seen: Inspected) -> SafeString:
    """As it is stored where nothing of it is masked."""
    if isinstance(seen.payload, payloads.Withheld):
        return format_html('<p class="quiet">{}</p>', str(seen.payload))
    body, how = bytes(letter.row["payload"]), letter.metadata["encoding"]
    if seen.payload is not letter.message.payload:
        is_bytes = isinstance(seen.payload, bytes)
        body = seen.payload if is_bytes else _json(seen.payload)
        how = encoding.BYTES if is_bytes else encoding.JSON
    return payloads.whole(body[: payloads.BODY_BYTES], len(body), how)


def _json(value: Any) -> bytes:
    return printable(json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False)).encode()
