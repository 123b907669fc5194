"""Search dead letters for the admin, by error or page by page. Each search is bounded, and returns how far it came."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from ..policy.batching import batches_by_weight
from ..policy.dead_letter_filter import DeadLetterQuery, DeadLetterSummary
from ..policy.errors import Alike
from ..service.redrive import BYTES_AT_ONCE, Letter
from ..store import dead_letters, garbage, log
from ..store.connection import session
from ..store.queries import bounded_counts, letter_heads, message_pages
from .sources import IDS, above_by_time, below_by_time

END = (1 << 63) - 1
CHUNK = 1_000
"""The number of dead letters that each statement reads."""
CHUNK_OF_PAYLOADS = 50
"""The same for statements that read payloads: each payload may be a megabyte."""
SEARCH_SECONDS = 0.15
"""Seconds after which a search ends and returns how far it came. A page also runs other queries."""
SEARCH_ROWS = 20_000
"""A search ends after about this number of dead letters."""
COUNT_MOST = 20_000
"""The number up to which the dead letters of a group are counted."""


@dataclass
class ErrorGroup:
    """Dead letters with similar errors.

    ``groups``: their number by consumer group. ``first`` and ``last``: epoch milliseconds of the failures. ``example``:
    the beginning of one error's text.
    """

    alike: Alike
    example: str
    count: int = 0
    groups: dict[str, int] = field(default_factory=dict)
    first: int = END
    last: int = 0

    def add(self, head: DeadLetterSummary) -> None:
        self.count += 1
        self.groups[head.group] = self.groups.get(head.group, 0) + 1
        self.first, self.last = min(self.first, head.failed_at), max(self.last, head.failed_at)


@dataclass(frozen=True)
class ErrorGroups:
    """Dead letters by error.

    ``errors``: (name of the exception, number of dead letters, groups of similar errors), the largest number first.
    ``looked``: how many dead letters were read, the newest first. ``next``: the offset below which more follow; None at
    the end.
    """

    errors: list[tuple[str, int, list[ErrorGroup]]]
    looked: int
    next: int | None


def by_error(
    using: str, choice: DeadLetterQuery, below: int = END, *, most: int = SEARCH_ROWS
) -> ErrorGroups:
    """Return the newest selected dead letters below an offset, in groups of similar errors.

    The search ends after about ``most`` dead letters, or after ``SEARCH_SECONDS`` seconds.
    """
    found: dict[Alike, ErrorGroup] = {}
    looked, then = 0, None
    with session.migration_errors(using):
        for step in _until(using, choice, (0, below), most):
            looked, then = step.looked, step.next
            for head in step.found:
                one = found.setdefault(head.alike, ErrorGroup(head.alike, head.error))
                one.add(head)
    names: dict[str, list[ErrorGroup]] = {}
    for group in sorted(found.values(), key=lambda one: -one.count):
        names.setdefault(group.alike.name, []).append(group)
    errors = [(name, sum(one.count for one in groups), groups) for name, groups in names.items()]
    return ErrorGroups(sorted(errors, key=lambda one: -one[1]), looked, then)


@dataclass(frozen=True)
class LetterPage:
    """A page of dead letters, newest first. ``next``: the offset below which to continue; None at the end."""

    heads: list[DeadLetterSummary]
    next: int | None
    looked: int


def page(using: str, choice: DeadLetterQuery, below: int = END, *, limit: int = 50) -> LetterPage:
    """Return the newest selected dead letters below an offset, at most ``limit``.

    If few dead letters match, a page may be empty and still have a ``next``.
    """
    found: list[DeadLetterSummary] = []
    looked, then = 0, None
    chunk = limit + 1 if choice.is_group_or_all else None
    with session.migration_errors(using):
        for step in _until(using, choice, (0, below), SEARCH_ROWS, chunk=chunk):
            found += step.found
            looked, then = step.looked, step.next
            if len(found) >= limit:
                break
        if len(found) > limit:
            found, then = found[:limit], found[limit - 1].offset
        shown = [head.offset for head in found]
        told = letter_heads.heads_of(using, choice.dead_topic, shown, sizes=False)
        return LetterPage(told[::-1], then, looked)


@dataclass(frozen=True)
class Count:
    """The number of selected dead letters. ``is_more``: there may be more. ``groups``: the number by group."""

    groups: dict[str, int]
    is_more: bool

    @property
    def number(self) -> int:
        return sum(self.groups.values())

    def __str__(self) -> str:
        return f"{self.number:,}{'+' if self.is_more else ''}"


def count(using: str, choice: DeadLetterQuery, up_to: int) -> Count:
    """Count the selected dead letters.

    All dead letters, or all of one group, are counted by an index, up to ``COUNT_MOST`` for each group. ``up_to`` has
    no effect then. For other selections the search reads dead letters up to the offset ``up_to``, the oldest first. It
    ends after ``SEARCH_SECONDS`` seconds or about ``SEARCH_ROWS`` dead letters.
    """
    with session.migration_errors(using):
        if choice.is_group_or_all:
            groups = sorted(dead_letters.groups(using, choice.dead_topic))
            if choice.group is not None:
                groups = [group for group in groups if group == choice.group]
            pairs = [(choice.dead_topic, group) for group in groups]
            counts = bounded_counts.letters(using, pairs, COUNT_MOST) if pairs else {}
            found = {group: counts[dead, group] for dead, group in pairs if counts.get((dead, group))}
            return Count(found, any(number >= COUNT_MOST for number in found.values()))
        found, then = {}, None
        for step in _until(using, choice, (0, up_to + 1), SEARCH_ROWS, newest_first=False):
            for head in step.found:
                found[head.group] = found.get(head.group, 0) + 1
            then = step.next
        return Count(found, then is not None)


def registered(using: str, topic: str, groups: Collection[str]) -> set[str]:
    """Return the ``groups`` that are registered for a topic."""
    return set(groups) & set(session.single(using, lambda cursor: garbage.starts(cursor, topic)))


def newest(using: str, dead_topic: str) -> int:
    """Return the offset of the newest dead letter; 0 if there is none."""
    with session.migration_errors(using):
        return log.newest(using, dead_topic)


def oldest(using: str, dead_topic: str) -> int:
    """Return the offset of the oldest dead letter; 0 if there is none."""
    with session.migration_errors(using):
        ends = bounded_counts.ends(using, [dead_topic])
    return ends[dead_topic].first if dead_topic in ends else 0


def one(using: str, offset: int) -> Letter | None:
    """Return the dead letter at an offset; None if there is none."""
    with session.migration_errors(using):
        rows = session.single(using, lambda cursor: dead_letters.read(cursor, [offset]))
    return Letter(rows[0], rows[0]["topic"]) if rows and rows[0]["failed_group"] is not None else None


def ids(using: str, choice: DeadLetterQuery) -> list[str]:
    """Return the original ids of dead letters that are selected by their offsets, oldest first.

    Dead letters that are gone are left out.
    """
    with session.migration_errors(using):
        return [head.id for step in walk(using, choice, (0, END), newest_first=False) for head in step.found]


@dataclass(frozen=True)
class Step:
    """The result of one statement.

    ``looked``: how many dead letters the walk has read so far. ``next``: the offset of the last row that was read; None
    at the end.
    """

    found: list[DeadLetterSummary]
    looked: int
    next: int | None


def _until(
    using: str,
    choice: DeadLetterQuery,
    bounds: tuple[int, int],
    most: int,
    *,
    newest_first: bool = True,
    chunk: int | None = None,
) -> Iterator[Step]:
    """Yield steps of ``walk`` until the end, or for at most ``SEARCH_SECONDS`` seconds and ``most`` dead letters."""
    begun = time.monotonic()
    for step in walk(using, choice, bounds, newest_first=newest_first, chunk=chunk):
        yield step
        if step.looked >= most or time.monotonic() - begun >= SEARCH_SECONDS:
            return


def walk(
    using: str,
    choice: DeadLetterQuery,
    bounds: tuple[int, int],
    *,
    newest_first: bool,
    chunk: int | None = None,
    sized: bool = False,
) -> Iterator[Step]:
    """Yield the selected dead letters between two offsets, both excluded, in steps. A step may be empty.

    ``chunk``: the number of rows for each statement. ``sized``: also read the payload sizes.
    """
    low, high = _by_time(using, choice, bounds)
    if choice.offsets is not None or choice.id is not None:
        found = letter_heads.heads_of(using, choice.dead_topic, _few(using, choice), sizes=True)
        fitting = [head for head in found if low < head.offset < high and choice.fits_head(head)]
        fitting = _by_payload(using, choice, fitting)
        yield Step(fitting[::-1] if newest_first else fitting, len(found), None)
        return
    chunk = chunk or (CHUNK if choice.test is None else CHUNK_OF_PAYLOADS)
    kinds, sizes = choice.kind is not None, sized or choice.test is not None
    looked = 0
    while low + 1 < high:
        heads, last = letter_heads.heads(
            using,
            choice.dead_topic,
            choice.key,
            (low, high),
            chunk,
            newest_first=newest_first,
            kinds=kinds,
            sizes=sizes,
        )
        looked += len(heads) if last is None else chunk
        fitting = [head for head in heads if choice.fits_head(head)]
        yield Step(_by_payload(using, choice, fitting), looked, last)
        if last is None:
            return
        low, high = (low, last) if newest_first else (last, high)


def _few(using: str, choice: DeadLetterQuery) -> list[int]:
    if choice.offsets is not None:
        return sorted(choice.offsets)
    groups = (
        [choice.group] if choice.group is not None else sorted(dead_letters.groups(using, choice.dead_topic))
    )
    if not groups or choice.id is None:
        return []
    return [
        place[0] for place in message_pages.by_original_id(using, choice.dead_topic, groups, choice.id, IDS)
    ]


def _by_time(using: str, choice: DeadLetterQuery, bounds: tuple[int, int]) -> tuple[int, int]:
    """Narrow the bounds to the selected times. Offsets rise with the times of failures, except within ``SLACK_MS``."""
    low, high = bounds
    if choice.after is not None:
        low = max(low, above_by_time(using, choice.dead_topic, choice.after))
    if choice.before is not None:
        high = min(high, below_by_time(using, choice.dead_topic, choice.before))
    return low, high


def _by_payload(
    using: str, choice: DeadLetterQuery, heads: list[DeadLetterSummary]
) -> list[DeadLetterSummary]:
    if choice.test is None:
        return heads
    some = batches_by_weight(heads, attrgetter("size"), BYTES_AT_ONCE)
    return [head for each in some for head in _tested(using, choice, each)]


def _tested(using: str, choice: DeadLetterQuery, heads: list[DeadLetterSummary]) -> list[DeadLetterSummary]:
    offsets = [head.offset for head in heads]
    rows = session.single(using, lambda cursor: dead_letters.read(cursor, offsets))
    fit = {int(row["offset"]) for row in rows if choice.fits(Letter(row, choice.dead_topic).message)}
    return [head for head in heads if head.offset in fit]
