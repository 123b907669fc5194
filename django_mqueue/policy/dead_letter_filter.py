"""Queries of dead letters: ``filter=`` of redrive and purge, and the filters on the admin's pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import ge, lt
from typing import Any

from ..messages import Message
from ..results import DeadLetterSummary
from .durations import moment_ms
from .errors import error_name, error_signature, is_class, part_of_line
from .filters import filter_of

Fits = Callable[[Message], bool]


def dead_letter_filter(filter: Mapping[str, Any] | Callable[[Message], Any] | None) -> Fits:
    """Return a test of a dead letter from a mapping or a callable. None matches all dead letters.

    In a mapping, ``error``, ``failed_after`` (included) and ``failed_before`` (not included) are about the failure.
    ``error`` is the exception's name, with or without its module, or a set of names. Other entries are the same as in a
    handler's filter. Raises ``TypeError`` or ``ValueError``.
    """
    if not isinstance(filter, Mapping):
        found = filter_of(filter)
        return (lambda dead_letter: True) if found is None else found
    rest = dict(filter)
    tests: list[Fits] = []
    if "error" in rest:
        tests.append(_of_error(rest.pop("error")))
    for name, compare in (("failed_after", ge), ("failed_before", lt)):
        if name in rest:
            tests.append(partial(_has_failed, compare, bound := rest.pop(name)))
            moment_ms(name, bound)
    if rest or not tests:
        matches = filter_of(rest)
        assert matches is not None
        tests.append(matches)
    return lambda dead_letter: all(test(dead_letter) for test in tests)


def _of_error(error: Any) -> Fits:
    names = error if isinstance(error, (set, frozenset)) else (error,)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"error must be the name of an exception, or a set of names, not {error!r}")

    def test(dead_letter: Message) -> bool:
        name = error_name(dead_letter.last_error)
        return name in names or name.rpartition(".")[2] in names

    return test


def _has_failed(compare: Callable[[Any, Any], bool], bound: datetime, dead_letter: Message) -> bool:
    return dead_letter.failed_at is not None and compare(dead_letter.failed_at, bound)


@dataclass(frozen=True)
class DeadLetterQuery:
    """A query of dead letters in a dead-letter topic. All given filters must match.

    - ``topic``: the original topic.
    - ``name``: an exception's name, with or without its module. ``line``: a part of ``ErrorSignature.line``. With
      ``exact``, both are equal to the fields of ``ErrorSignature``.
    - ``after`` (included), ``before`` (not included): epoch milliseconds of the failure.
    - ``test``: a test of payload and headers.
    - ``offsets``: the offsets of dead letters.
    """

    topic: str
    dead_topic: str
    group: str | None = None
    key: str | None = None
    id: str | None = None
    kind: str | None = None
    name: str | None = None
    line: str | None = None
    after: int | None = None
    before: int | None = None
    test: Fits | None = None
    offsets: frozenset[int] | None = None
    exact: bool = False

    @property
    def is_all(self) -> bool:
        return self.is_group_or_all and self.group is None

    @property
    def is_group_or_all(self) -> bool:
        """Return whether an index is enough to count the dead letters: at most the group is given."""
        return self == DeadLetterQuery(self.topic, self.dead_topic, self.group)

    def fits_summary(self, summary: DeadLetterSummary) -> bool:
        """Return whether a dead letter matches, without its payload."""
        return (
            summary.original_topic == self.topic
            and self.group in (None, summary.group)
            and self.key in (None, summary.partition)
            and self.id in (None, summary.id)
            and self.kind in (None, summary.kind)
            and (self.after is None or summary.failed_at >= self.after)
            and (self.before is None or summary.failed_at < self.before)
            and (self.offsets is None or summary.offset in self.offsets)
            and self._fits_error(summary.error)
        )

    def fits(self, dead_letter: Message) -> bool:
        """Return whether a complete dead letter matches."""
        at = moment_ms("failed_at", dead_letter.failed_at) if dead_letter.failed_at is not None else 0
        summary = DeadLetterSummary(
            dead_letter.offset, dead_letter.key or "", dead_letter.id, dead_letter.original_topic or "",
            dead_letter.failed_group or "", at, 0, dead_letter.last_error, dead_letter.kind,
        )  # fmt: skip
        return self.fits_summary(summary) and (self.test is None or self.test(dead_letter))

    def _fits_error(self, error: str) -> bool:
        if self.name is None and self.line is None:
            return True
        found = error_signature(error)
        if self.exact:
            return self.name in (None, found.name) and self.line in (None, found.line)
        return self._is_named(found.name) and self._is_in(found.line)

    def _is_named(self, name: str) -> bool:
        """Match a name. A class also matches without its module. Other texts must be equal."""
        return self.name in (None, name) or (is_class(name) and name.rpartition(".")[2] == self.name)

    def _is_in(self, line: str) -> bool:
        if self.line is None:
            return True
        part = part_of_line(self.line).casefold()
        return bool(part) and part in line.casefold()
