"""Which dead letters are meant: ``filter=`` of redrive and purge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ..messages import Message
from .durations import moment_ms
from .matching import filter_of

Fits = Callable[[Message], bool]


def letter_filter(wanted: Mapping[str, Any] | Callable[[Message], Any] | None) -> Fits:
    """A test of a letter. Of a mapping ``error``, ``failed_after`` and ``failed_before`` are the letter's own.

    ``error``: the exception's name, with or without its module, or a set of them. ``failed_after`` is included,
    ``failed_before`` is not. The rest is as for a handler's filter. Raises ``TypeError`` or ``ValueError``.
    """
    if not isinstance(wanted, Mapping):
        found = filter_of(wanted)
        return (lambda letter: True) if found is None else found
    rest = dict(wanted)
    tests: list[Fits] = []
    if "error" in rest:
        tests.append(_of_error(rest.pop("error")))
    if "failed_after" in rest:
        after = _moment("failed_after", rest.pop("failed_after"))
        tests.append(lambda letter: letter.failed_at is not None and letter.failed_at >= after)
    if "failed_before" in rest:
        before = _moment("failed_before", rest.pop("failed_before"))
        tests.append(lambda letter: letter.failed_at is not None and letter.failed_at < before)
    if rest or not tests:
        matches = filter_of(rest)
        assert matches is not None
        tests.append(matches)
    return lambda letter: all(test(letter) for test in tests)


def error_name(error: str) -> str:
    """The exception's name, with its module, at the beginning of an error's text; '' for what is no exception's."""
    head = error.partition("\n")[0].partition(":")[0].strip()
    return head if head.replace(".", "").replace("_", "").isalnum() else ""


def _of_error(wanted: Any) -> Fits:
    given = wanted if isinstance(wanted, (set, frozenset)) else {wanted}
    if not given or not all(isinstance(name, str) and name for name in given):
        raise TypeError(f"error must be the name of an exception, or a set of names, not {wanted!r}")

    def test(letter: Message) -> bool:
        name = error_name(letter.last_error)
        return name in given or name.rpartition(".")[2] in given

    return test


def _moment(argument: str, value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError(f"{argument} must be an aware datetime, not {value!r}")
    moment_ms(argument, value)
    return value
