"""Groups of similar errors: the same class, and the same text except for numbers and ids."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

HEAD = 200
"""Characters of an error's text that are compared. SQL statements must fetch the same number."""

LINE = 120
"""Maximum length of ``ErrorSignature.line``. It is less than ``HEAD``: masks shorten similar texts differently."""

NO_TEXT = "(no text)"
"""The ``line`` of errors without text."""

_COLOURS = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b[@-_]")
_HIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_WORDS = re.compile(r"[\w-]*\d[\w-]*(?:[.,]\d+)*", re.ASCII)
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
_ID = re.compile(r"0[xX][0-9a-fA-F]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
ID_LENGTH = 16
"""The length from which a word with digits counts as an id."""


@dataclass(frozen=True, order=True)
class ErrorSignature:
    """The common part of similar errors: the exception's name or '', and the first line with ``#`` for numbers."""

    name: str
    line: str


def error_signature(error: str | None) -> ErrorSignature:
    """Return the common part of an error. It is equal for errors that differ only in numbers and ids."""
    beginning = plain((error or "")[:HEAD])
    line = " ".join(beginning.lstrip().splitlines()[0].split()) if beginning.strip() else ""
    return ErrorSignature(error_name(line), _WORDS.sub(_masked, line)[:LINE].rstrip() or NO_TEXT)


@lru_cache(maxsize=64)
def part_of_line(text: str) -> str:
    """Return a search text in the form of ``ErrorSignature.line``: with ``#`` for numbers and ids."""
    return _WORDS.sub(_masked, " ".join(plain(text).split()))[:LINE].rstrip()


def plain(text: str) -> str:
    """Return the text without colour codes. Control characters and marks of the text's direction become visible."""
    return _HIDDEN.sub(_visible, _COLOURS.sub("", text))


def error_name(error: str) -> str:
    """Return the exception's name, with its module, at the beginning of an error's text; '' if there is none."""
    name = error.partition("\n")[0].partition(":")[0].strip()
    return name if name.replace(".", "").replace("_", "").isalnum() else ""


def short(line: str) -> str:
    """Return an error's first line with the class's name alone: ``shop.NoSuchOrder: 7`` becomes ``NoSuchOrder: 7``."""
    name = error_name(line)
    return line.replace(name, name.rpartition(".")[2], 1) if is_class(name) else line


def is_class(name: str) -> bool:
    """Return whether a name from ``error_name`` looks like a class: ``TimeoutError``, ``shop.errors.NoSuchOrder``."""
    parts = name.split(".")
    return all(part.isidentifier() for part in parts) and parts[-1][:1].isupper()


def _masked(word: re.Match[str]) -> str:
    text = word.group()
    if len(text) >= ID_LENGTH or _ID.fullmatch(text):
        return "#"
    return _DIGITS.sub("#", text)


def _visible(character: re.Match[str]) -> str:
    code = ord(character.group())
    return chr(0x2400 + code) if code < 0x20 else f"\\u{code:04x}"
