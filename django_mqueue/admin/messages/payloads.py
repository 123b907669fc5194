"""Payloads and headers as HTML: JSON indented, bytes as their length and first bytes in hexadecimal."""

from __future__ import annotations

import json
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ...policy.encoding import BYTES, JSON
from ...policy.message_query import Cut, Inspected, Unreadable
from ..base.display import EMPTY, block, cell, quiet

HEAD_BYTES = 400
"""Bytes that a list reads of each payload."""
BODY_BYTES = 262_144
"""Bytes that the page of one message reads of the payload."""
BODY_CHARACTERS = 1_048_576
"""Characters of the payload that the page of one message shows."""
HEX_IN_LIST, HEX_LINE, HEX_LINES = 12, 16, 32


class Withheld(str):
    """The text that replaces a hidden payload or error."""


def beginning(message: Inspected) -> str:
    """Return a message's payload on one line, for a list."""
    if isinstance(message.payload, Withheld):
        return quiet(message.payload)
    stored = _stored(message)
    if stored is None:
        return cell(compact(message.payload))
    body, length, encoding = stored
    if encoding == BYTES:
        return quiet(f"{size(length)}: {body[:HEX_IN_LIST].hex(' ')}{'…' if length > HEX_IN_LIST else ''}")
    text = body.decode(errors="replace")
    return cell(text if len(body) == length else text.rstrip("\ufffd") + " …")


def body(message: Inspected) -> SafeString:
    """Return a message's payload for its own page."""
    if isinstance(message.payload, Withheld):
        return quiet(message.payload)
    stored = _stored(message)
    return of_value(message.payload, message.size) if stored is None else whole(*stored)


def _stored(message: Inspected) -> tuple[bytes, int, str] | None:
    """Return (bytes, whole length, encoding) of a payload that is not a decoded value."""
    payload = message.payload
    if isinstance(payload, Cut):
        return payload.beginning, message.size, JSON if payload.is_json else BYTES
    if isinstance(payload, bytes):
        return payload, len(payload), JSON if isinstance(payload, Unreadable) else BYTES
    return None


def of_value(value: Any, length: int) -> SafeString:
    """Return a JSON value as HTML. ``length``: its stored size in bytes."""
    text = pretty(value)
    caption = _("JSON, %(size)s")
    if len(text) > BODY_CHARACTERS:
        caption = _("JSON, %(size)s; the first %(shown)s characters are shown")
    values = {"size": size(length), "shown": f"{BODY_CHARACTERS:,}"}
    return _captioned(caption % values, text[:BODY_CHARACTERS])


def pretty(value: Any) -> str:
    """Return a JSON value as indented text, or without indentation if it is too long or nested too deeply."""
    pieces, length = [], 0
    try:
        for piece in DjangoJSONEncoder(ensure_ascii=False, indent=2).iterencode(value):
            pieces.append(piece)
            length += len(piece)
            if length > BODY_CHARACTERS:
                return compact(value)
    except RecursionError:
        return compact(value)
    return "".join(pieces)


def compact(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, cls=DjangoJSONEncoder)
    except RecursionError:
        return _("nested too deeply to be shown")


def whole(body: bytes, length: int, encoding: str) -> SafeString:
    """Return a payload for its own page.

    ``body``: the payload, or its beginning if it is longer than ``BODY_BYTES``. ``length``: of the whole payload.
    """
    if encoding == BYTES:
        shown = HEX_LINE * HEX_LINES
        caption = _("%(size)s; the first %(shown)s are shown") if shown < length else "%(size)s"
        return _captioned(caption % {"size": size(length), "shown": f"{shown:,}"}, _hex(body))
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


def size(length: int) -> str:
    return ngettext("%(count)s byte", "%(count)s bytes", length) % {"count": f"{length:,}"}


def _hex(body: bytes) -> str:
    lines = []
    for start in range(0, min(len(body), HEX_LINE * HEX_LINES), HEX_LINE):
        row = body[start : start + HEX_LINE]
        ascii_text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{HEX_LINE * 3 - 1}}  {ascii_text}")
    return "\n".join(lines)


def _captioned(caption: str, text: str) -> SafeString:
    return format_html('<span class="mqueue-caption">{}</span>{}', caption, block(text))
