"""Which messages a handler wants: ``filter=``, a mapping or a callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from ..messages import Message

Filter = Mapping[str, Any] | Callable[[Message], Any]

PAYLOAD = "payload__"
_NOTHING = object()


def filter_of(wanted: Filter | None) -> Callable[[Message], bool] | None:
    """A test of a message, or None where all are wanted.

    A mapping's keys are names of headers, or paths into the payload (``payload__customer__id``; a number is a place in
    a list). Its values are what must stand there, or a set of which it must be one. All must match; what is
    not there matches nothing. Raises ``TypeError`` or ``ValueError`` for anything else.
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
        raise ValueError("filter must name something; leave it out to take all messages")
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
    """Equal, and both or neither a truth value: 1 is not True."""
    if found is _NOTHING:
        return False
    if isinstance(value, Set):
        return any(_is(found, one) for one in value)
    return bool(found == value) and isinstance(found, bool) == isinstance(value, bool)
