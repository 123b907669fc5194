"""Payloads and headers as HTML: JSON indented, bytes as their length and first bytes in hexadecimal."""

from __future__ import annotations

import json
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ...browse.masking import Withheld
from ...drawing.payload_texts import BODY_CHARACTERS, HEX_LINE, HEX_LINES, hex_lines, on_a_line, stored
from ...drawing.payload_texts import HEAD_BYTES as HEAD_BYTES
from ...drawing.payload_texts import compact as compact
from ...drawing.payload_texts import pretty as pretty
from ...drawing.payload_texts import size as size
from ...policy.encoding import BYTES
from ...results import Inspected
from ..base.display import EMPTY, block, cell, quiet

BODY_BYTES = 262_144
"""Bytes that the page of one message reads of the payload."""


def beginning(message: Inspected) -> str:
    """Return a message's payload on one line, for a list."""
    text, found = on_a_line(message), stored(message)
    is_text = not isinstance(message.payload, Withheld) and (found is None or found[2] != BYTES)
    return cell(text) if is_text else quiet(text)


def body(message: Inspected) -> SafeString:
    """Return a message's payload for its own page."""
    if isinstance(message.payload, Withheld):
        return quiet(message.payload)
    found = stored(message)
    return of_value(message.payload, message.size) if found is None else whole(*found)


def of_value(value: Any, length: int) -> SafeString:
    """Return a JSON value as HTML. ``length``: its stored size in bytes."""
    text = pretty(value)
    caption = _("JSON, %(size)s")
    if len(text) > BODY_CHARACTERS:
        caption = _("JSON, %(size)s; the first %(shown)s characters are shown")
    values = {"size": size(length), "shown": f"{BODY_CHARACTERS:,}"}
    return _captioned(caption % values, text[:BODY_CHARACTERS])


def whole(body: bytes, length: int, encoding: str) -> SafeString:
    """Return a payload for its own page.

    ``body``: the payload, or its beginning if it is longer than ``BODY_BYTES``. ``length``: of the whole payload.
    """
    if encoding == BYTES:
        shown = HEX_LINE * HEX_LINES
        caption = _("%(size)s; the first %(shown)s are shown") if shown < length else "%(size)s"
        return _captioned(caption % {"size": size(length), "shown": f"{shown:,}"}, hex_lines(body))
    if len(body) < length:
        text = body.decode(errors="replace").rstrip("\ufffd")
        caption = _("JSON, %(size)s; the first %(shown)s are shown")
        return _captioned(caption % {"size": size(length), "shown": f"{len(body):,}"}, text)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        caption = _("not valid JSON, %(size)s")
        return _captioned(caption % {"size": size(length)}, body.decode(errors="replace"))
    return of_value(value, length)


def document(value: Any) -> str:
    """Return headers, or another JSON value, indented."""
    if value is None or value == {}:
        return EMPTY
    return block(pretty(value))


def _captioned(caption: str, text: str) -> SafeString:
    return format_html('<span class="mqueue-caption">{}</span>{}', caption, block(text))
