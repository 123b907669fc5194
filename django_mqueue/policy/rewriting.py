"""Payloads as text that people change: JSON with the place of what is wrong, bytes as hexadecimal or base64."""

from __future__ import annotations

import binascii
import difflib
import json
from base64 import b64decode
from decimal import Decimal
from typing import Any

JSON_TEXT, HEX, BASE64 = FORMS = ("json", "hex", "base64")
DIFF_LINES = 4_000
"""Lines of both texts together that are compared: the time grows faster than they do."""
CONTEXT = 3
HEX_LINE = 32


class Unreadable(ValueError):
    """The text is not in the form that it is said to be in; it says where."""


def as_text(body: bytes, is_bytes: bool) -> tuple[str, str]:
    """(form, text) of a stored payload, to be changed. JSON that is none is given as it stands."""
    if not is_bytes:
        try:
            return JSON_TEXT, indented(body.decode())
        except UnicodeDecodeError:
            pass
    return HEX, "\n".join(body[at : at + HEX_LINE].hex(" ") for at in range(0, len(body), HEX_LINE))


def indented(text: str) -> str:
    """JSON on many lines. As it stands where it is none, or holds what would not come out as it went in."""
    try:
        found = read_json(text)
        shown = json.dumps(found, ensure_ascii=False, indent=2, allow_nan=False)
        shown.encode()
    except (ValueError, RecursionError):
        return text
    return shown


def read(form: str, text: str) -> Any:
    """The payload that a text stands for: bytes, or what JSON says. Raises ``Unreadable``."""
    if form == JSON_TEXT:
        return read_json(text)
    return _read_hex(text) if form == HEX else _read_base64(text)


def read_json(text: str) -> Any:
    """Raises ``Unreadable`` for what is no JSON, and for what would be stored otherwise than it is written."""
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_float, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise Unreadable(f"no JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise Unreadable("lists and mappings are nested too deep") from None
    except Unreadable:
        raise
    except ValueError as error:  # A number of thousands of digits.
        raise Unreadable(f"no JSON: {error}") from None


def diff(before: str, after: str) -> list[tuple[str, str]] | None:
    """(``+``, ``-``, ``@`` or a blank; line) of what differs, with lines around it; None if there is too much of it."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > DIFF_LINES:
        return None
    lines = list(difflib.unified_diff(old, new, n=CONTEXT, lineterm=""))[2:]
    return [(line[:1] or " ", line if line[:2] == "@@" else line[1:]) for line in lines]


def _no_constant(name: str) -> Any:
    raise Unreadable(f"{name} is no JSON")


def _float(text: str) -> float:
    """Raises ``Unreadable`` where the number would be another one."""
    found = float(text)
    if found in (float("inf"), float("-inf")) or Decimal(repr(found)) != Decimal(text):
        raise Unreadable(f"the number {text[:40]} cannot be kept exactly: write it as a text")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Unreadable(f"the name {twice!r} stands twice in one mapping")
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
