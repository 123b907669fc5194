"""Stored tracebacks, split into frames of the project, frames of libraries, and other text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_FRAME = re.compile(
    r'^(?P<indent>[ |+-]*)File "(?P<file>[^"\n]*)", line (?P<line>\d+)(?:, in (?P<name>.*))?$'
)
_LIBRARY = re.compile(
    r"[\\/](?:site|dist)-packages[\\/]|[\\/]lib[\\/]python\d|[\\/]django_mqueue[\\/]|^<frozen|[\\/]Lib[\\/]"
)


@dataclass
class Part:
    """Lines of an error's text: frames of the project only, or frames of libraries only.

    A part without ``places`` is the text between frames.
    """

    is_library: bool = False
    places: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def parts(error: str) -> list[Part]:
    """Split the whole text into parts. Neighbouring frames of the same kind are one part."""
    found: list[Part] = []
    for kind, place, line in _lines(error):
        last = found[-1] if found else None
        if kind is None:
            if last is None or last.places:
                found.append(Part())
        elif place:
            if last is None or not last.places or kind is not last.is_library:
                found.append(Part(kind))
            found[-1].places.append(place)
        found[-1].lines.append(line)
    return found


def _lines(error: str) -> Iterator[tuple[bool | None, str, str]]:
    """Yield (frame of a library, place, line) for each line.

    The first value is None outside of frames. ``place`` is empty except in the first line of a frame.
    """
    inside: bool | None = None
    indent = 0
    for line in error.split("\n"):
        frame = _FRAME.match(line)
        if frame:
            inside, indent = bool(_LIBRARY.search(frame["file"])), len(frame["indent"])
            place = f"{frame['file']}:{frame['line']}" + (f" in {frame['name']}" if frame["name"] else "")
            yield inside, place, line
            continue
        if inside is not None and len(line) - len(line.lstrip(" |")) <= indent:
            inside = None
        yield inside, "", line
