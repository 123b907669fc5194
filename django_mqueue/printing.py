"""Make text from any source safe to show on a page or a terminal."""

from __future__ import annotations

import re

from .policy.errors import plain

_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")

_BREAKS = {9: "\u2409", 10: "\u240a"}


def printable(text: str) -> str:
    """Return ``text`` with the characters escaped that a page cannot show safely.

    JSON may hold lone surrogates, which UTF-8 cannot encode. Characters that change the direction of the text around
    them could make one text look like another.
    """
    sendable = text.encode("utf-8", "backslashreplace").decode()
    return _TURNING.sub(lambda found: f"\\u{ord(found.group()):04x}", sendable)


def for_terminal(text: str) -> str:
    """Return ``text`` for a terminal.

    It has no characters that move the cursor, change the screen or change the direction of text. JSON text still
    decodes to the same value.
    """
    return printable(plain(text)).replace("\r\n", "\n").replace("\r", "\u240d")


def on_a_line(text: str) -> str:
    """Return ``text`` like ``for_terminal``, but on one line: tabs and line breaks become visible symbols."""
    return for_terminal(text).translate(_BREAKS)
