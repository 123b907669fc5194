"""Payloads as plain text: JSON, or bytes as their length and first bytes in hexadecimal."""

from __future__ import annotations

import json
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..policy.encoding import BYTES, JSON
from ..results import Cut, Inspected, Unreadable

HEAD_BYTES = 400
"""Bytes that a list reads of each payload."""
BODY_CHARACTERS = 1_048_576
"""Maximum characters of a payload that are shown."""
HEX_IN_LIST, HEX_LINE, HEX_LINES = 12, 16, 32


class Withheld(str):
    """The text that replaces a hidden payload or error."""


def on_a_line(message: Inspected) -> str:
    """Return a message's payload on one line, for a list. Of a long payload, only the beginning may be known."""
    if isinstance(message.payload, Withheld):
        return str(message.payload)
    found = stored(message)
    if found is None:
        return compact(message.payload)
    body, length, encoding = found
    if encoding == BYTES:
        return f"{size(length)}: {body[:HEX_IN_LIST].hex(' ')}{'…' if length > HEX_IN_LIST else ''}"
    text = body.decode(errors="replace")
    return text if len(body) == length else text.rstrip("\ufffd") + " …"


def whole(message: Inspected) -> str:
    """Return a message's payload on several lines: JSON indented, bytes as hexadecimal."""
    if isinstance(message.payload, Withheld):
        return str(message.payload)
    found = stored(message)
    if found is None:
        return pretty(message.payload)
    body, length, encoding = found
    return f"{size(length)}\n{hex_lines(body)}" if encoding == BYTES else body.decode(errors="replace")


def stored(message: Inspected) -> tuple[bytes, int, str] | None:
    """Return (bytes, whole length, encoding) of a payload that is not a decoded value."""
    payload = message.payload
    if isinstance(payload, Cut):
        return payload.beginning, message.size, JSON if payload.is_json else BYTES
    if isinstance(payload, bytes):
        return payload, len(payload), JSON if isinstance(payload, Unreadable) else BYTES
    return None


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


def size(length: int) -> str:
    return ngettext("%(count)s byte", "%(count)s bytes", length) % {"count": f"{length:,}"}


def hex_lines(body: bytes) -> str:
    lines = []
    for start in range(0, min(len(body), HEX_LINE * HEX_LINES), HEX_LINE):
        row = body[start : start + HEX_LINE]
        ascii_text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{HEX_LINE * 3 - 1}}  {ascii_text}")
    return "\n".join(lines)
