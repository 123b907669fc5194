"""Payloads and headers as HTML: JSON indented, bytes as their length and first bytes in hexadecimal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ...policy.encoding import BYTES, JSON
from ...policy.message_query import Cut, Inspected, Unreadable
from ..base.display import EMPTY, block, cell, printable, quiet

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
    """Return a message's payload for a list."""
    payload = message.payload
    if isinstance(payload, Withheld):
        return quiet(payload)
    if isinstance(payload, Cut):
        return head(payload.beginning, message.size, JSON if payload.is_json else BYTES)
    if isinstance(payload, bytes):
        return head(payload, len(payload), JSON if isinstance(payload, Unreadable) else BYTES)
    return cell(compact(payload))


def body(message: Inspected) -> SafeString:
    """Return a message's payload for its own page."""
    payload, size = message.payload, message.size
    if isinstance(payload, Withheld):
        return quiet(payload)
    if isinstance(payload, Cut):
        return whole(payload.beginning, size, JSON if payload.is_json else BYTES)
    if isinstance(payload, bytes):
        return whole(payload, len(payload), JSON if isinstance(payload, Unreadable) else BYTES)
    return of_value(payload, size)


def of_value(value: Any, size: int) -> SafeString:
    """Return a JSON value as HTML. ``size``: its stored size in bytes."""
    text = pretty(value)
    caption = f"JSON, {_bytes(size)}"
    if len(text) > BODY_CHARACTERS:
        return _captioned(
            f"{caption}; the first {BODY_CHARACTERS:,} characters are shown", 0, 0, text[:BODY_CHARACTERS]
        )
    return _captioned(caption, 0, 0, text)


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
        return "nested too deeply to be shown"


def head(body: bytes, length: int, encoding: str) -> str:
    """Return the beginning of a payload on one line, for a list."""
    if encoding == BYTES:
        return quiet(f"{_bytes(length)}: {body[:HEX_IN_LIST].hex(' ')}{'…' if length > HEX_IN_LIST else ''}")
    text = body.decode(errors="replace")
    return cell(text if len(body) == length else text.rstrip("\ufffd") + " …")


def whole(body: bytes, length: int, encoding: str) -> SafeString:
    """Return a payload for its own page.

    ``body``: the payload, or its beginning if it is longer than ``BODY_BYTES``.
    """
    if encoding == BYTES:
        shown = min(length, HEX_LINE * HEX_LINES)
        return _captioned(_bytes(length), shown, length, _hex(body))
    if len(body) < length:
        text = body.decode(errors="replace").rstrip("\ufffd")
        return _captioned(f"JSON, {_bytes(length)}", len(body), length, text)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return _captioned(f"not valid JSON, {_bytes(length)}", length, length, body.decode(errors="replace"))
    return of_value(value, length)


def document(value: Any) -> str:
    """Return a JSON value of another column, indented."""
    if value is None or value == {}:
        return EMPTY
    return block(pretty(value))


def part(metadata: Any, name: str) -> Any:
    """Return one entry of a message's metadata, or None if another program has written other metadata."""
    return metadata.get(name) if isinstance(metadata, Mapping) else None


def encoding(metadata: Any) -> str:
    return BYTES if part(metadata, "encoding") == BYTES else JSON


def _hex(body: bytes) -> str:
    lines = []
    for start in range(0, min(len(body), HEX_LINE * HEX_LINES), HEX_LINE):
        row = body[start : start + HEX_LINE]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{HEX_LINE * 3 - 1}}  {letters}")
    return "\n".join(lines)


def _captioned(caption: str, shown: int, length: int, text: str) -> SafeString:
    if shown < length:
        caption += f"; the first {shown:,} are shown"
    return format_html(
        "{}{}", format_html('<span class="mqueue-caption">{}</span>', caption), block(printable(text))
    )


def _bytes(length: int) -> str:
    return f"{length:,} byte{'' if length == 1 else 's'}"
