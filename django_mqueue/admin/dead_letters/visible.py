"""Limit a dead letter to the parts that the user may see: payload, headers and errors may be masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ... import conf
from ...browse import dead_letter_details
from ...browse.dead_letters import ErrorGroup
from ...policy.errors import is_class
from ...results import Inspected
from ...service.redrive import DeadLetterRow
from ..base.operations import Data, Refused
from ..messages import masking, payloads

ByName = tuple[str, int, list[ErrorGroup]]
"""The exception's name, the number of its dead letters, and its groups of similar errors."""


@dataclass(frozen=True)
class Visibility:
    """The parts of a topic's dead letters that a user may see.

    Without ``everything``, lists show no texts of errors, and masks hide parts of the messages.
    """

    everything: bool

    def allowed(self, data: Data) -> dict[str, Any]:
        """Return the filter without the fields that would reveal hidden parts."""
        if self.everything:
            return dict(data)
        return {**data, "line": "", "path": "", "value": "", "error": self.name(data.get("error") or "")}

    def check(self, data: Data) -> None:
        """Raise ``Refused`` if the filter uses fields that the user may not search."""
        allowed = self.allowed(data)
        if any((data.get(name) or "") != (allowed.get(name) or "") for name in ("line", "path", "error")):
            raise Refused(
                _(
                    "Payloads and errors of this topic are masked. To filter by them, you need the permission to see"
                    " the masked parts."
                )
            )

    def name(self, name: str) -> str:
        """Return the exception's name, or "" if it may be a text that is masked."""
        return name if self.everything or is_class(name) else ""

    def names(self, errors: Sequence[ErrorGroup]) -> list[ByName]:
        """Return the errors by name, most frequent first. All names that the user may not see share one entry, ""."""
        by_name: dict[str, list[ErrorGroup]] = {}
        for group in errors:
            by_name.setdefault(self.name(group.signature.name), []).append(group)
        found = [(name, sum(group.count for group in groups), groups) for name, groups in by_name.items()]
        return sorted(found, key=lambda one: -one[1])


def visibility_of(request: HttpRequest, topic: str, dead_topic: str) -> Visibility:
    return Visibility(masking.sees_all(request, topic) and masking.sees_all(request, dead_topic))


def topics_of(dead_letter: DeadLetterRow) -> dict[str, str | None]:
    """Return the query parameters of pages about the dead letter's topic."""
    topic = dead_letter.row["original_topic"] or ""
    return {
        "topic": topic,
        "dead": None if conf.dead_letter_topic(topic) == dead_letter.topic else dead_letter.topic,
    }


def masked_for(request: HttpRequest, dead_letter: DeadLetterRow) -> Inspected:
    """Return the dead letter as the user may see it. Its original topic and its own topic may have different masks."""
    message = dead_letter_details.as_message(dead_letter)
    return replace(
        masking.masked_for(request, replace(message, topic=dead_letter.topic)), topic=message.topic
    )


def payload(dead_letter: DeadLetterRow, message: Inspected, *, everything: bool) -> SafeString:
    """Return the payload as HTML: as it is stored, or as a mask has changed it."""
    if not everything:
        return payloads.body(message)
    body = bytes(dead_letter.row["payload"])
    return payloads.whole(body[: payloads.BODY_BYTES], len(body), dead_letter.metadata["encoding"])
