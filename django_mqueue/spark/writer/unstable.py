"""Content that may differ when it is computed again.

Spark adds floats in any order, and the order changes the last bits of a sum. Of two floats that differ in the last bit,
at least one has 16 or 17 digits as text. Most results of ``rand()`` also do. One row does not show that ``uuid()``
or ``current_timestamp()`` made a value, so ``VolatileContent`` compares the rows of a task.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

_DOUBLE = re.compile(r"[+-]?([0-9]+\.[0-9]+)([eE][+-]?[0-9]+)?")
_RANDOM_UUID = re.compile(
    "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE
)
SAMPLE = 1000
"""The maximum number of rows that ``VolatileContent`` compares, to limit its time and memory."""

MARGIN = 60
"""Seconds by which the clocks of two machines may differ, and by which Spark may read its clock before the write."""


def unstable_in(value: Any) -> str | None:
    """Return the first number in a column's value whose last digits may differ; None if there is none."""
    return next((text for text in _texts_in(value) if _is_unstable(text)), None)


def _texts_in(value: Any) -> list[str]:
    """Return all texts and numbers in a column's value: in JSON at any depth, in a map, or the text itself."""
    if isinstance(value, str | bytes):
        with suppress(ValueError, RecursionError):
            return list(_texts(json.loads(value, parse_float=str, parse_int=str)))
    return list(_texts(value))


class VolatileContent:
    """Finds columns whose values are probably different in another run: (column, description) in ``found``.

    Such a column has a new random UUID in each row, or the same recent time in all rows. ``found`` is None if
    there is no row.
    """

    def __init__(self, began: float) -> None:
        self.found: frozenset[tuple[str, str]] | None = None
        self._since = began - MARGIN
        self._rows = 0
        self._uuids: set[str] = set()

    def add(self, **columns: Any) -> None:
        if self._rows == SAMPLE or self.found == frozenset():
            return
        self._rows += 1
        texts = ((name, text) for name, value in columns.items() for text in _texts_in(value))
        found = frozenset((name, what) for name, text in texts if (what := self._description(text)))
        self.found = found if self.found is None else self.found & found

    def _description(self, text: str) -> str:
        """Return how the text is volatile; '' if it seems stable."""
        if _RANDOM_UUID.fullmatch(text):
            new = text not in self._uuids
            self._uuids.add(text)
            return "a random UUID" if new else ""
        recent = any(self._since <= moment <= time.time() + MARGIN for moment in _moments(text))
        return f"the time {text}" if recent else ""


def _moments(text: str) -> list[float]:
    """Return the moments that a text may name, in seconds since 1970: ISO 8601, or a number."""
    with suppress(ValueError):
        number = float(text)
        return [number, number / 1e3, number / 1e6]
    with suppress(ValueError, OverflowError):
        return [datetime.fromisoformat(text).timestamp()]
    return []


def _is_unstable(text: str) -> bool:
    found = _DOUBLE.fullmatch(text)
    return found is not None and len(found[1].replace(".", "").strip("0")) in (16, 17)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value, including keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.items():
            yield from _texts(list(item))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
