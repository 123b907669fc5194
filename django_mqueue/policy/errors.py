"""Errors that are alike: of one class, and of one text but for the numbers and ids in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

HEAD = 200
"""Characters of an error's text that are looked at. What lists compare must be what a statement fetches."""

LINE = 120
"""Characters of ``Alike.line``: fewer than of the head, so that the lengths of ids before its end do not matter."""

NOTHING = "(no text)"
"""The ``line`` of errors that say nothing."""

_COLOURS = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b[@-_]")
_HIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_WORDS = re.compile(r"[\w-]*\d[\w-]*(?:[.,]\d+)*", re.ASCII)
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
_ID = re.compile(r"0[xX][0-9a-fA-F]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
ID_LENGTH = 16
"""Of a word with digits in it that is taken for an id as a whole."""


@dataclass(frozen=True, order=True)
class Alike:
    """What alike errors have in common. ``name`` is the exception's, with its module, '' where the text has none;
    ``line`` is the first line, with ``#`` for what differs."""

    name: str
    line: str


def alike(error: str | None) -> Alike:
    """The same for two errors that tell the same of different numbers and ids."""
    head = plain((error or "")[:HEAD])
    line = " ".join(head.lstrip().splitlines()[0].split()) if head.strip() else ""
    return Alike(error_name(line), _WORDS.sub(_blurred, line)[:LINE].rstrip() or NOTHING)


@lru_cache(maxsize=64)
def part_of_line(text: str) -> str:
    """What somebody looks for in lines of ``alike``, with ``#`` for numbers and ids as these have it."""
    return _WORDS.sub(_blurred, " ".join(plain(text).split()))[:LINE].rstrip()


def plain(text: str) -> str:
    """The text without a terminal's colours, and with control characters made visible, also those that turn the
    direction of what follows."""
    return _HIDDEN.sub(_visible, _COLOURS.sub("", text))


def error_name(error: str) -> str:
    """The exception's name, with its module, at the beginning of an error's text; '' for what is no exception's."""
    head = error.partition("\n")[0].partition(":")[0].strip()
    return head if head.replace(".", "").replace("_", "").isalnum() else ""


def is_class(name: str) -> bool:
    """Whether what ``error_name`` gives is written as classes are, with or without a module: ``TimeoutError``,
    ``shop.errors.NoSuchOrder``. The beginning of other texts may look like a name."""
    parts = name.split(".")
    return all(part.isidentifier() for part in parts) and parts[-1][:1].isupper()


def _blurred(word: re.Match[str]) -> str:
    text = word.group()
    if len(text) >= ID_LENGTH or _ID.fullmatch(text):
        return "#"
    return _DIGITS.sub("#", text)


def _visible(character: re.Match[str]) -> str:
    code = ord(character.group())
    return chr(0x2400 + code) if code < 0x20 else f"\\u{code:04x}"
