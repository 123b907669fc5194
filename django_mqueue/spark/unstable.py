"""Content whose last digits may differ when it is computed again.

Floats that are added in another order differ in their last bits, and Spark adds them in any order. Two doubles that are
so near to each other cannot both be written with 15 digits: so a number that may differ shows 16 or 17 digits, at least
in one of the runs. ``rand()`` shows as many.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

_DOUBLE = re.compile(r"[+-]?([0-9]+\.[0-9]+)([eE][+-]?[0-9]+)?")


def unstable_in(value: Any) -> str | None:
    """The first such number in a column's value: in JSON text at any depth, in a map, or the text itself."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value, parse_float=str)
    return next((text for text in _texts(value) if _is_unstable(text)), None)


def _is_unstable(text: str) -> bool:
    found = _DOUBLE.fullmatch(text)
    return found is not None and len(found[1].replace(".", "").strip("0")) in (16, 17)


def _texts(value: Any) -> Iterator[str]:
    """All texts in it, keys among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.items():
            yield from _texts(list(item))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
