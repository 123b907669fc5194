"""Stored tracebacks, split into frames of the project, frames of libraries, and other text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from django.utils.translation import gettext as _

_FRAME = re.compile(
    r'^(?P<indent>[ |+-]*)File "(?P<file>[^"\n]*)", line (?P<line>\d+)(?:, in (?P<name>.*))?$'
)
_LIBRARY = re.compile(
    r"[\\/](?:site|dist)-packages[\\/]|[\\/]lib[\\/]python\d|[\\/]django_mqueue[\\/]|^<frozen|[\\/]Lib[\\/]"
)


@dataclass(frozen=True)
class Part:
    """Neighbouring lines of an error's text: frames of the project, frames of libraries, or text between frames.

    ``places``: the file, line and function of each frame.
    """

    is_library: bool
    places: list[str]
    text: str


def parts(error: str) -> list[Part]:
    """Split the whole text into parts. Neighbouring frames of the same kind are one part."""
    found = []
    for is_library, group in groupby(_lines(error), key=lambda line: line[0]):
        lines = list(group)
        places = [line[1] for line in lines if line[1]]
        found.append(Part(bool(is_library), places, "\n".join(line[2] for line in lines)))
    return found


def _lines(error: str) -> Iterator[tuple[bool | None, str, str]]:
    """Yield (is a library's frame, place, text) for each line. The first value is None for lines outside frames.

    Only the first line of a frame has a place.
    """
    inside: bool | None = None
    indent = 0
    for line in error.split("\n"):
        place = ""
        if frame := _FRAME.match(line):
            inside, indent = bool(_LIBRARY.search(frame["file"])), len(frame["indent"])
            place = f"{frame['file']}:{frame['line']}"
            if frame["name"]:
                place = _("%(place)s in %(function)s") % {"place": place, "function": frame["name"]}
        elif inside is not None and len(line) - len(line.lstrip(" |")) <= indent:
            inside = None
        yield inside, place, line
