"""The option ``kinds=`` of a handler: the kinds of message that it takes, and the parsers of their payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ..exceptions import Reject

Parser = Callable[[Any], Any]
Kinds = Mapping[str, Any] | Iterable[str]


def kinds_of(kinds: Kinds | None) -> dict[str, Parser | None] | None:
    """Return the parser of each kind, or None if the handler takes all kinds.

    A parser is a dataclass (its fields are the payload's), a pydantic model, or a callable that takes the payload. None
    in place of a parser leaves the payload unchanged. Raises ``TypeError`` or ``ValueError`` for other values.
    """
    if kinds is None:
        return None
    if isinstance(kinds, str):
        raise TypeError(
            f"kinds must be a list of kinds or a mapping from kind to parser, not the str {kinds!r}"
        )
    given = dict(kinds) if isinstance(kinds, Mapping) else dict.fromkeys(kinds)
    if not given:
        raise ValueError("kinds must name at least one kind; leave it out to take all")
    for kind in given:
        if not isinstance(kind, str):
            raise TypeError(f"a kind must be a str, not {kind!r}")
    return {kind: _parser(kind, parser) for kind, parser in given.items()}


def _parser(kind: str, parser: Any) -> Parser | None:
    if parser is None:
        return None
    if hasattr(parser, "model_validate"):  # pydantic's
        return parser.model_validate  # type: ignore[no-any-return]
    if isinstance(parser, type) and is_dataclass(parser):
        return lambda payload: _filled(parser, payload)
    if callable(parser):
        return parser  # type: ignore[no-any-return]
    raise TypeError(f"kinds[{kind!r}] must be a dataclass, a pydantic model or a callable, not {parser!r}")


def _filled(model: type, payload: Any) -> Any:
    """Return a dataclass instance for a mapping. Raises ``TypeError`` that names missing or unknown fields."""
    if not isinstance(payload, Mapping):
        raise TypeError(f"{model.__name__} needs a mapping, not {type(payload).__name__}")
    known = {field.name for field in fields(model) if field.init}
    if unknown := payload.keys() - known:
        raise TypeError(f"{model.__name__} has no field {', '.join(sorted(map(repr, unknown)))}")
    return model(**payload)


def parsed(message: Any, kinds: Mapping[str, Parser | None]) -> Any:
    """Return the message with its payload parsed. Raises ``Reject`` if the kind is not taken or the parser fails."""
    if message.kind not in kinds:
        taken = ", ".join(map(repr, sorted(kinds)))
        raise Reject(f"kind {message.kind!r} is not accepted by this handler; it accepts: {taken}")
    parser = kinds[message.kind]
    if parser is None:
        return message
    try:
        payload = parser(message.payload)
    except Exception as error:
        raise Reject(
            f"the payload of kind {message.kind!r} does not parse: {type(error).__name__}: {error}"
        ) from error
    return replace(message, payload=payload)
