"""The option ``filter=`` of a handler: a mapping or a callable that selects messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from typing import Any

from ..messages import Message

Filter = Mapping[str, Any] | Callable[[Message], Any]

PAYLOAD = "payload__"
_NOTHING = object()
_INDEX = re.compile(r"\[(\d+)\]")


def filter_of(filter: Filter | None) -> Callable[[Message], bool] | None:
    """Return a test of a message, or None if all messages match.

    The keys of a mapping are names of headers, or paths into the payload (``payload__customer__id``; a number is an
    index of a list). A value must be equal to the header or the part of the payload. A set matches if one of its values
    is equal. All entries must match, and a missing part matches nothing.

    Raises ``TypeError`` or ``ValueError`` for other values.
    """
    if filter is None:
        return None
    if isinstance(filter, Mapping):
        return _mapping_filter(dict(filter))
    if callable(filter):
        return lambda message: bool(filter(message))
    raise TypeError(f"filter must be a mapping or a callable that takes the message, not {filter!r}")


def payload_path(text: str) -> str:
    """Return the key of a filter for a path that a user types.

    ``customer.id``, ``$.customer.id`` and ``payload__customer__id`` are the same path. ``$.items[0]`` is the first
    item of a list.
    """
    path = text.removeprefix(PAYLOAD)
    if path == "$" or path.startswith(("$.", "$[")):
        path = path[1:].removeprefix(".")
    path = _INDEX.sub(lambda found: f".{found[1]}", path).removeprefix(".")
    return PAYLOAD + path.replace(".", "__")


def _mapping_filter(filter: dict[str, Any]) -> Callable[[Message], bool]:
    if not filter:
        raise ValueError(
            "filter is empty, but must name a header or a payload path; leave it out to take all messages"
        )
    for name in filter:
        if not isinstance(name, str) or not name:
            raise TypeError(f"filter's keys must be names of headers or {PAYLOAD} paths, not {name!r}")
        if name.startswith(PAYLOAD) and not all(name.removeprefix(PAYLOAD).split("__")):
            raise ValueError(f"filter has a path with an empty part: {name!r}")
    return lambda message: all(_is_equal(_found(message, name), value) for name, value in filter.items())


def _found(message: Message, path: str) -> Any:
    if not path.startswith(PAYLOAD):
        return message.headers.get(path, _NOTHING)
    part = message.payload
    for name in path.removeprefix(PAYLOAD).split("__"):
        if isinstance(part, dict):
            part = part.get(name, _NOTHING)
        elif isinstance(part, list) and name.isdecimal() and int(name) < len(part):
            part = part[int(name)]
        else:
            return _NOTHING
    return part


def _is_equal(found: Any, value: Any) -> bool:
    """Return whether the values are equal. A bool is only equal to a bool: 1 is not True."""
    if found is _NOTHING:
        return False
    if isinstance(value, Set):
        return any(_is_equal(found, one) for one in value)
    return bool(found == value) and isinstance(found, bool) == isinstance(value, bool)
