"""The option ``filter=`` of a handler: a mapping or a callable that selects messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from ..messages import Message

Filter = Mapping[str, Any] | Callable[[Message], Any]

PAYLOAD = "payload__"
_NOTHING = object()


def filter_of(wanted: Filter | None) -> Callable[[Message], bool] | None:
    """Return a test of a message, or None if all messages match.

    The keys of a mapping are names of headers, or paths into the payload (``payload__customer__id``; a number is an
    index of a list). A value must be equal to the header or the part of the payload. A set matches if one of its values
    is equal. All entries must match, and a missing part matches nothing.

    Raises ``TypeError`` or ``ValueError`` for other values.
    """
    if wanted is None:
        return None
    if isinstance(wanted, Mapping):
        return _mapping_filter(dict(wanted))
    if callable(wanted):
        return lambda message: bool(wanted(message))
    raise TypeError(f"filter must be a mapping or a callable that takes the message, not {wanted!r}")


def _mapping_filter(wanted: dict[str, Any]) -> Callable[[Message], bool]:
    if not wanted:
        raise ValueError(
            "filter is empty, but must name a header or a payload path; leave it out to take all messages"
        )
    for name in wanted:
        if not isinstance(name, str) or not name:
            raise TypeError(f"filter's keys must be names of headers or {PAYLOAD} paths, not {name!r}")
        if name.startswith(PAYLOAD) and not all(name.removeprefix(PAYLOAD).split("__")):
            raise ValueError(f"filter has a path with an empty part: {name!r}")
    return lambda message: all(_is(_found(message, name), value) for name, value in wanted.items())


def _found(message: Message, name: str) -> Any:
    if not name.startswith(PAYLOAD):
        return message.headers.get(name, _NOTHING)
    place = message.payload
    for part in name.removeprefix(PAYLOAD).split("__"):
        if isinstance(place, dict):
            place = place.get(part, _NOTHING)
        elif isinstance(place, list) and part.isdecimal() and int(part) < len(place):
            place = place[int(part)]
        else:
            return _NOTHING
    return place


def _is(found: Any, value: Any) -> bool:
    """Return whether the values are equal. A bool is only equal to a bool: 1 is not True."""
    if found is _NOTHING:
        return False
    if isinstance(value, Set):
        return any(_is(found, one) for one in value)
    return bool(found == value) and isinstance(found, bool) == isinstance(value, bool)
