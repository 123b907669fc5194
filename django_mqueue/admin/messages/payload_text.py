"""Payloads as text that users type: JSON, UTF-8, or bytes as hexadecimal or base64."""

from __future__ import annotations

import difflib
import json
from base64 import b64decode
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

JSON_TEXT, TEXT, HEX, BASE64 = "json", "text", "hex", "base64"
NOT_VALID = {
    TEXT: gettext_lazy("This is not UTF-8: %(problem)s."),
    HEX: gettext_lazy("This is not hexadecimal: %(problem)s."),
    BASE64: gettext_lazy("This is not base64: %(problem)s."),
}
DIFF_LINES = 4_000
"""Maximum lines of both texts together. The time grows faster than the number of lines."""
CONTEXT = 3
HEX_LINE = 32


def as_text(body: bytes, is_bytes: bool) -> tuple[str, str]:
    """Return (form, text) of a stored payload, for editing. Invalid JSON is returned unchanged.

    Bytes, and a payload that is not valid UTF-8, are returned as hexadecimal.
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
        shown = json.dumps(parse_json(text), ensure_ascii=False, indent=2, allow_nan=False)
        shown.encode()
    except (ValidationError, ValueError, RecursionError):
        return text
    return shown


def parse(form: str, text: str) -> Any:
    """Return the payload for a text: bytes, or the value of the JSON. Raises ``ValidationError``."""
    if form == JSON_TEXT:
        return parse_json(text)
    try:
        if form == TEXT:
            return text.replace("\r\n", "\n").encode()
        digits = "".join(text.split())
        return bytes.fromhex(digits) if form == HEX else b64decode(digits, validate=True)
    except ValueError as problem:
        raise ValidationError(NOT_VALID[form] % {"problem": problem}) from None


def parse_json(text: str) -> Any:
    """Return the value. Raises ``ValidationError`` if it is not JSON, or would be stored differently."""
    try:
        return json.loads(
            text, parse_constant=_no_constant, parse_float=_exact, object_pairs_hook=_with_unique_names
        )
    except json.JSONDecodeError as problem:
        message = _("This is not JSON: %(problem)s at line %(line)s, column %(column)s.")
        values = {"problem": problem.msg, "line": problem.lineno, "column": problem.colno}
        raise ValidationError(message % values) from None
    except ValueError as problem:  # An integer with thousands of digits.
        raise ValidationError(_("This is not JSON: %(problem)s") % {"problem": problem}) from None
    except RecursionError:
        raise ValidationError(_("This is nested too deeply.")) from None


def diff(before: str, after: str) -> list[tuple[str, str]] | None:
    """Return (``+``, ``-``, ``@`` or blank, text) for each line of the diff; None if the texts are too long."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > DIFF_LINES:
        return None
    lines = list(difflib.unified_diff(old, new, n=CONTEXT, lineterm=""))[2:]
    return [(line[:1] or " ", line if line[:2] == "@@" else line[1:]) for line in lines]


def _no_constant(name: str) -> Any:
    raise ValidationError(_("This is not JSON: %(name)s is not a value of JSON.") % {"name": name})


def _exact(text: str) -> float:
    found = float(text)
    try:
        is_exact = Decimal(repr(found)) == Decimal(text)
    except InvalidOperation:  # The exponent has too many digits.
        is_exact = False
    if not is_exact:
        problem = _("The number %(number)s cannot be kept exactly: write it as a text.")
        raise ValidationError(problem % {"number": text[:40]})
    return found


def _with_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [pair[0] for pair in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValidationError(_("The name %(name)r occurs twice in one mapping.") % {"name": twice})
    return found
