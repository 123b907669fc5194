"""Payloads as text that users edit: JSON with the position of an error, or bytes as hexadecimal or base64."""

from __future__ import annotations

import binascii
import difflib
import json
from base64 import b64decode
from decimal import Decimal
from typing import Any

JSON_TEXT, HEX, BASE64 = FORMS = ("json", "hex", "base64")
DIFF_LINES = 4_000
"""Maximum lines of both texts that are compared. The time grows faster than the number of lines."""
CONTEXT = 3
HEX_LINE = 32


class Unreadable(ValueError):
    """The text is not valid in its form. The error's text gives the place."""


def as_text(body: bytes, is_bytes: bool) -> tuple[str, str]:
    """Return (form, text) of a stored payload, for editing. Invalid JSON is returned unchanged.

    A payload that is not valid UTF-8 is returned as hexadecimal.
    """
    if not is_bytes:
        try:
            return JSON_TEXT, indented(body.decode())
        except UnicodeDecodeError:
            pass
    return HEX, "\n".join(body[at : at + HEX_LINE].hex(" ") for at in range(0, len(body), HEX_LINE))


def indented(text: str) -> str:
    """Return JSON on several lines. Invalid JSON, and JSON that the conversion would change, is returned unchanged."""
    try:
        found = read_json(text)
        shown = json.dumps(found, ensure_ascii=False, indent=2, allow_nan=False)
        shown.encode()
    except (ValueError, RecursionError):
        return text
    return shown


def read(form: str, text: str) -> Any:
    """Return the payload for a text: bytes, or the value of the JSON. Raises ``Unreadable``."""
    if form == JSON_TEXT:
        return read_json(text)
    return _read_hex(text) if form == HEX else _read_base64(text)


def read_json(text: str) -> Any:
    """Return the value of the JSON. Raises ``Unreadable`` if it is invalid or would be stored differently."""
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_float, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise Unreadable(f"no JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise Unreadable("lists and mappings are nested too deep") from None
    except Unreadable:
        raise
    except ValueError as error:  # An integer with thousands of digits.
        raise Unreadable(f"no JSON: {error}") from None


def diff(before: str, after: str) -> list[tuple[str, str]] | None:
    """Return (``+``, ``-``, ``@`` or blank; line) of the differences, with context; None if the texts are too long."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > DIFF_LINES:
        return None
    lines = list(difflib.unified_diff(old, new, n=CONTEXT, lineterm=""))[2:]
    return [(line[:1] or " ", line if line[:2] == "@@" else line[1:]) for line in lines]


def _no_constant(name: str) -> Any:
    raise Unreadable(f"{name} is no JSON")


def _float(text: str) -> float:
    """Return the number. Raises ``Unreadable`` if a float cannot hold it exactly."""
    found = float(text)
    if found in (float("inf"), float("-inf")) or Decimal(repr(found)) != Decimal(text):
        raise Unreadable(f"the number {text[:40]} cannot be kept exactly: write it as a text")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Unreadable(f"the name {twice!r} occurs twice in one mapping")
    return found


def _read_hex(text: str) -> bytes:
    digits = "".join(text.split())
    for place, digit in enumerate(digits, 1):
        if digit not in "0123456789abcdefABCDEF":
            raise Unreadable(f"no hexadecimal: {digit!r} is the digit number {place}")
    if len(digits) % 2:
        raise Unreadable(f"no hexadecimal: the number of digits, {len(digits)}, is odd")
    return bytes.fromhex(digits)


def _read_base64(text: str) -> bytes:
    try:
        return b64decode("".join(text.split()).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise Unreadable(f"no base64: {error}") from None
