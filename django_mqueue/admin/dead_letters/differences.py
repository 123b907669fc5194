"""The difference between a dead letter and its edited content: for the page, and for the log of actions."""

from __future__ import annotations

from dataclasses import replace

from django.utils.translation import gettext as _

from ...browse import dead_letter_details, masking
from ...messages import Edited
from ...results import Inspected
from ...service.redrive import DeadLetterRow
from ..messages import payload_text, payloads

Difference = tuple[str, list[tuple[str, str]] | None]
"""The title of one part of the content, and its lines as ``payload_text.diff`` returns them."""
LOGGED_CHARACTERS = 20_000
"""Maximum characters of a difference in the log of actions."""


def shown(before: tuple[str, str], after: tuple[str, str]) -> list[Difference]:
    """Return the parts that differ. ``before`` and ``after``: payload and headers as text."""
    titles = (_("Payload"), _("Headers"))
    return [
        (title, payload_text.diff(old, new))
        for title, old, new in zip(titles, before, after, strict=True)
        if old != new
    ]


def logged(dead_letter: DeadLetterRow, edited: Edited) -> str:
    """Return the difference for the log of actions.

    The masks of the topic always apply: readers of the log may not have the permission to see masked parts.
    """
    message = dead_letter_details.as_message(dead_letter)
    message = replace(message, topic=dead_letter.topic)
    new = replace(message, payload=edited.payload, headers=dict(edited.headers))
    before, after = (_texts(masking.masked(one)) for one in (message, new))
    parts = []
    for title, lines in shown(before, after):
        if lines is None:
            parts.append(_("%(part)s: the texts are too long to compare.") % {"part": title})
        else:
            parts += [f"{title}:", *(line if sign == "@" else f"{sign} {line}" for sign, line in lines)]
    if not parts and (message.payload, message.headers) != (new.payload, new.headers):
        parts.append(_("Only masked parts were changed."))
    text = "\n".join(parts)
    return text if len(text) <= LOGGED_CHARACTERS else text[:LOGGED_CHARACTERS] + "…"


def _texts(message: Inspected) -> tuple[str, str]:
    """Return payload and headers as text."""
    payload, headers = message.payload, payloads.pretty(dict(message.headers))
    if isinstance(payload, masking.Withheld):
        return str(payload), headers
    if isinstance(payload, bytes):
        return payload_text.as_text(payload, is_bytes=True)[1], headers
    return payloads.pretty(payload), headers
