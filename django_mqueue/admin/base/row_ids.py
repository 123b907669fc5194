"""Primary keys in URLs. A composite key is encoded as one URL-safe word. Its parts may hold any characters."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

_ALTERNATIVES = b"-."
"""Replacements for base64's ``+`` and ``/``. They have no special meaning in a path, or for the admin's ``quote``."""


def encode(key: Any) -> str:
    """Return the word for a primary key. For a key of one column, it is the key as text."""
    if not isinstance(key, tuple):
        return str(key)
    text = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
    return b64encode(text.encode(), _ALTERNATIVES).decode().rstrip("=")


def decode(word: str, *kinds: type) -> tuple[Any, ...] | None:
    """Return the composite key for a word, or None if the word is not a key with parts of these ``kinds``."""
    try:
        padded = word.encode("ascii") + b"=" * (-len(word) % 4)
        key = json.loads(b64decode(padded, _ALTERNATIVES, validate=True))
    except (ValueError, RecursionError):
        return None
    if not isinstance(key, list) or [type(part) for part in key] != list(kinds):
        return None
    return tuple(key)
