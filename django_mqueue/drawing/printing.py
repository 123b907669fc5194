"""Texts that anybody may have written, such as a page can show them."""

from __future__ import annotations

import re

_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """``text`` such as a page can send it: JSON may hold halves of surrogate pairs, UTF-8 may not. What turns the
    direction of the text around it is made visible, or one thing could be shown as another."""
    sendable = text.encode("utf-8", "backslashreplace").decode()
    return _TURNING.sub(lambda found: f"\\u{ord(found.group()):04x}", sendable)
