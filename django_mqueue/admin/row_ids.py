"""Primary keys in URLs: a composite one as one word that a path can hold, whatever its parts hold."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

_ALTERNATIVES = b"-."
"""For base64's ``+`` and ``/``: both mean nothing in a path, and nothing to the admin's own quoting."""


def encode(key: Any) -> str:
    """The word for a primary key; a plain one is its own."""
    if not isinstance(key, tuple):
        return str(key)
    text = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
    return b64encode(text.encode(), _ALTERNATIVES).decode().rstrip("=")


def decode(word: str, *kinds: type) -> tuple[Any, ...] | None:
    """The composite key with parts of these kinds that a word stands for; None if it stands for none."""
    try:
        padded = word.encode("ascii") + b"=" * (-len(word) % 4)
        key = json.loads(b64decode(padded, _ALTERNATIVES, validate=True))
    except (ValueError, RecursionError):
        return None
    if not isinstance(key, list) or [type(part) for part in key] != list(kinds):
        return None
    return tuple(key)
