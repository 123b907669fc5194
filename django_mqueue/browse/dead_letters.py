"""Search, count and read dead letters.

Each search is bounded, and returns where the next one continues.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from ..policy.batching import BYTES_PER_STATEMENT, batches, batches_by_weight
from ..policy.dead_letter_filter import DeadLetterQuery
from ..policy.errors import ErrorSignature
from ..policy.message_query import OFFSET_MAX as OFFSET_MAX
from ..results import DeadLetterSummary
from ..service.redrive import DeadLetterRow
from ..store import dead_letters, log, offsets
from ..store.connection import session
from ..store.queries import bounded_counts, dead_letter_summaries, message_pages
from .sources import IDS, above_by_time, below_by_time

CHUNK = 1_000
"""The number of dead letters that each statement reads."""
CHUNK_OF_PAYLOADS = 50
"""The same for statements that read payloads: each payload may be a megabyte."""
SEARCH_SECONDS = 0.15
"""Seconds after which a search ends. A page also runs other queries."""
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

    signature: ErrorSignature
    example: str
    count: int = 0
    groups: dict[str, int] = field(default_factory=dict)
    first: int = OFFSET_MAX
    last: int = 0

    def add(self, summary: DeadLetterSummary) -> None:
        self.count += 1
        self.groups[summary.group] = self.groups.get(summary.group, 0) + 1
        self.first, self.last = min(self.first, summary.failed_at), max(self.last, summary.failed_at)


@dataclass(frozen=True)
class ErrorGroups:
    """Dead letters by error.

    ``errors``: groups of similar errors, the largest first. ``examined``: how many dead letters were read, the newest
    first. ``next``: the offset below which more follow; None at the end.
    """

    errors: list[ErrorGroup]
    examined: int
    next: int | None


def by_error(using: str, query: DeadLetterQuery, below: int = OFFSET_MAX) -> ErrorGroups:
    """Return the newest selected dead letters below an offset, in groups of similar errors."""
    found: dict[ErrorSignature, ErrorGroup] = {}
    examined, next_offset = 0, None
    with session.raises_not_migrated(using):
        for step in bounded_walk(using, query, (0, below)):
            examined, next_offset = step.examined, step.next
            for summary in step.found:
                similar = found.setdefault(summary.signature, ErrorGroup(summary.signature, summary.error))
                similar.add(summary)
    errors = sorted(found.values(), key=lambda group: -group.count)
    return ErrorGroups(errors, examined, next_offset)


@dataclass(frozen=True)
class DeadLetterPage:
    """A page of dead letters, newest first. ``next``: the offset below which to continue; None at the end."""

    summaries: list[DeadLetterSummary]
    next: int | None
    examined: int


def page(using: str, query: DeadLetterQuery, below: int = OFFSET_MAX, *, limit: int = 50) -> DeadLetterPage:
    """Return the newest selected dead letters below an offset, at most ``limit``.

    If few dead letters match, a page may be empty and still have a ``next``.
    """
    found: list[DeadLetterSummary] = []
    examined, next_offset = 0, None
    chunk = limit + 1 if query.is_all else None
    with session.raises_not_migrated(using):
        for step in bounded_walk(using, query, (0, below), chunk=chunk):
            found += step.found
            examined, next_offset = step.examined, step.next
            if len(found) >= limit:
                break
        if len(found) > limit:
            found, next_offset = found[:limit], found[limit - 1].offset
        shown = [summary.offset for summary in found]
        summaries = dead_letter_summaries.at_offsets(using, query.dead_topic, shown, sizes=False)
        return DeadLetterPage(summaries[::-1], next_offset, examined)


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


def count(
    using: str,
    query: DeadLetterQuery,
    up_to: int,
    *,
    seconds: float | None = None,
    most: int | None = None,
) -> Count:
    """Count the selected dead letters.

    All dead letters, or all of one group, are counted by an index, up to ``most`` for each group; None stands for
    ``COUNT_MOST``. ``up_to`` has no effect then. For other selections the search reads dead letters up to the offset
    ``up_to``, the oldest first. It ends after ``seconds`` (None: ``SEARCH_SECONDS``) or about ``SEARCH_ROWS`` dead
    letters.
    """
    most = COUNT_MOST if most is None else most
    with session.raises_not_migrated(using):
        if query.is_group_or_all:
            groups = sorted(dead_letters.groups(using, query.dead_topic))
            if query.group is not None:
                groups = [group for group in groups if group == query.group]
            pairs = [(query.dead_topic, group) for group in groups]
            counts = bounded_counts.dead_letters(using, pairs, most) if pairs else {}
            found = {group: counts[dead, group] for dead, group in pairs if counts.get((dead, group))}
            return Count(found, any(number >= most for number in found.values()))
        found, next_offset = {}, None
        for step in bounded_walk(using, query, (0, up_to + 1), newest_first=False, seconds=seconds):
            for summary in step.found:
                found[summary.group] = found.get(summary.group, 0) + 1
            next_offset = step.next
        return Count(found, next_offset is not None)


def registered(using: str, topic: str, groups: Collection[str]) -> set[str]:
    """Return the ``groups`` that are registered for a topic."""
    return set(groups) & offsets.registrations(using, topic).keys()


def newest(using: str, dead_topic: str) -> int:
    """Return the offset of the newest dead letter; 0 if there is none."""
    with session.raises_not_migrated(using):
        return log.newest(using, dead_topic)


def oldest(using: str, dead_topic: str) -> int:
    """Return the offset of the oldest dead letter; 0 if there is none."""
    with session.raises_not_migrated(using):
        ends = bounded_counts.ends(using, [dead_topic])
    return ends[dead_topic].first if dead_topic in ends else 0


def one(using: str, offset: int) -> DeadLetterRow | None:
    """Return the dead letter at an offset; None if there is none."""
    with session.raises_not_migrated(using):
        rows = session.run_statement(using, lambda cursor: dead_letters.read(cursor, [offset]))
    return DeadLetterRow(rows[0], rows[0]["topic"]) if rows and rows[0]["failed_group"] is not None else None


def ids(using: str, query: DeadLetterQuery) -> list[str]:
    """Return the original ids of dead letters that are selected by their offsets, oldest first.

    Dead letters that are gone are left out.
    """
    with session.raises_not_migrated(using):
        return [
            summary.id
            for step in walk(using, query, (0, OFFSET_MAX), newest_first=False)
            for summary in step.found
        ]


@dataclass(frozen=True)
class Step:
    """One step of a walk.

    ``examined``: how many dead letters the walk has read so far. ``next``: the offset of the last row that was read;
    None at the end.
    """

    found: list[DeadLetterSummary]
    examined: int
    next: int | None


def bounded_walk(
    using: str,
    query: DeadLetterQuery,
    bounds: tuple[int, int],
    *,
    newest_first: bool = True,
    chunk: int | None = None,
    seconds: float | None = None,
) -> Iterator[Step]:
    """Yield steps of ``walk`` until the end, or for at most ``seconds`` and about ``SEARCH_ROWS`` dead letters.

    ``seconds``: None stands for ``SEARCH_SECONDS``.
    """
    seconds = SEARCH_SECONDS if seconds is None else seconds
    begun = time.monotonic()
    for step in walk(using, query, bounds, newest_first=newest_first, chunk=chunk):
        yield step
        if step.examined >= SEARCH_ROWS or time.monotonic() - begun >= seconds:
            return


def walk(
    using: str,
    query: DeadLetterQuery,
    bounds: tuple[int, int],
    *,
    newest_first: bool,
    chunk: int | None = None,
    sized: bool = False,
) -> Iterator[Step]:
    """Yield the selected dead letters between two offsets, both excluded, in steps. A step may be empty.

    ``chunk``: the number of rows for each statement. ``sized``: also read the payload sizes.
    """
    low, high = _by_time(using, query, bounds)
    if query.offsets is not None or query.id is not None:
        with_sizes = sized or query.test is not None
        offsets = [offset for offset in _offsets(using, query) if low < offset < high]
        if newest_first:
            offsets.reverse()
        parts, examined = [*batches(offsets, IDS)] or [[]], 0
        for number, some in enumerate(parts, 1):
            summaries = dead_letter_summaries.at_offsets(
                using, query.dead_topic, sorted(some), sizes=with_sizes
            )
            matching = [summary for summary in summaries if query.fits_summary(summary)]
            matching = _filter_by_payload(using, query, matching)
            last = some[-1] if number < len(parts) else None
            examined += len(summaries)
            yield Step(matching[::-1] if newest_first else matching, examined, last)
        return
    chunk = chunk or (CHUNK if query.test is None else CHUNK_OF_PAYLOADS)
    kinds, sizes = query.kind is not None, sized or query.test is not None
    examined = 0
    while low + 1 < high:
        summaries, last = dead_letter_summaries.page(
            using,
            query.dead_topic,
            query.key,
            (low, high),
            chunk,
            newest_first=newest_first,
            kinds=kinds,
            sizes=sizes,
        )
        examined += len(summaries) if last is None else chunk
        matching = [summary for summary in summaries if query.fits_summary(summary)]
        yield Step(_filter_by_payload(using, query, matching), examined, last)
        if last is None:
            return
        low, high = (low, last) if newest_first else (last, high)


def _offsets(using: str, query: DeadLetterQuery) -> list[int]:
    if query.offsets is not None:
        return sorted(query.offsets)
    groups = (
        [query.group] if query.group is not None else sorted(dead_letters.groups(using, query.dead_topic))
    )
    if not groups or query.id is None:
        return []
    return [
        offset for offset, _, _ in message_pages.by_original_id(using, query.dead_topic, groups, query.id)
    ]


def _by_time(using: str, query: DeadLetterQuery, bounds: tuple[int, int]) -> tuple[int, int]:
    """Narrow the bounds to the selected times. Offsets rise with the times of failures, except within ``SLACK_MS``."""
    low, high = bounds
    if query.after is not None:
        low = max(low, above_by_time(using, query.dead_topic, query.after))
    if query.before is not None:
        high = min(high, below_by_time(using, query.dead_topic, query.before))
    return low, high


def _filter_by_payload(
    using: str, query: DeadLetterQuery, summaries: list[DeadLetterSummary]
) -> list[DeadLetterSummary]:
    if query.test is None:
        return summaries
    found: list[DeadLetterSummary] = []
    for part in batches_by_weight(summaries, attrgetter("size"), BYTES_PER_STATEMENT):
        rows = session.run_statement(using, partial(dead_letters.read, offsets=[one.offset for one in part]))
        matching = {
            int(row["offset"]) for row in rows if query.fits(DeadLetterRow(row, query.dead_topic).message)
        }
        found += [summary for summary in part if summary.offset in matching]
    return found
