"""Texts that anybody may have written, such as a page or a terminal can show them."""

from __future__ import annotations

import re

from ..policy.errors import plain

_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")

_BREAKS = {9: "\u2409", 10: "\u240a"}


def printable(text: str) -> str:
    """``text`` such as a page can send it: JSON may hold halves of surrogate pairs, UTF-8 may not. What turns the
    direction of the text around it is made visible, or one thing could be shown as another."""
    sendable = text.encode("utf-8", "backslashreplace").decode()
    return _TURNING.sub(lambda found: f"\\u{ord(found.group()):04x}", sendable)


def shown(text: str) -> str:
    """``text`` for a terminal: without what moves a cursor, changes the screen, or turns a direction. What is JSON
    stays the same JSON."""
    return printable(plain(text)).replace("\r\n", "\n").replace("\r", "\u240d")


def on_a_line(text: str) -> str:
    """The same, within a line that says more: it begins none of its own."""
    return shown(text).translate(_BREAKS)
