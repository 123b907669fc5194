"""Dead letters as operators look at them: of what errors they are, and which ones. Bounded, and honest."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from ..policy.errors import Alike
from ..policy.letters import Choice, Head
from ..store import figures, garbage, history, letter_heads, letters, log, session
from .history import IDS, above_by_time, below_by_time
from .redrive import BYTES_AT_ONCE, Letter

END = (1 << 63) - 1
CHUNK = 1_000
"""Letters looked at by one statement."""
CHUNK_OF_PAYLOADS = 50
"""The same, where payloads are read for it: each may be a megabyte."""
LOOK = 0.15
"""Seconds that a look for letters may take before it says how far it has come: the page has other things to ask."""
LOOK_MOST = 20_000
"""Letters looked at, at most."""
COUNT_MOST = 20_000
"""Of each group."""


@dataclass
class ErrorGroup:
    """Letters of alike errors. ``first`` and ``last``: epoch milliseconds; ``example``: an error's own line."""

    alike: Alike
    example: str
    count: int = 0
    groups: dict[str, int] = field(default_factory=dict)
    first: int = END
    last: int = 0

    def add(self, head: Head) -> None:
        self.count += 1
        self.groups[head.group] = self.groups.get(head.group, 0) + 1
        self.first, self.last = min(self.first, head.failed_at), max(self.last, head.failed_at)


@dataclass(frozen=True)
class ErrorGroups:
    """By exception's name and then by number, the most first. ``looked`` letters were, the newest; ``next``: the offset
    below which there are more, None at the end."""

    errors: list[tuple[str, int, list[ErrorGroup]]]
    looked: int
    next: int | None


def by_error(using: str, choice: Choice, below: int = END, *, most: int = LOOK_MOST) -> ErrorGroups:
    """The newest letters that are chosen, below an offset, by what is alike in their errors."""
    found: dict[Alike, ErrorGroup] = {}
    looked, then = 0, None
    with session.explained(using):
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
    """Newest first. ``next``: the offset below which to go on, None at the end."""

    heads: list[Head]
    next: int | None
    looked: int


def page(using: str, choice: Choice, below: int = END, *, limit: int = 50) -> LetterPage:
    """The newest letters that are chosen, below an offset; perhaps none and a ``next``, where few of many fit."""
    found: list[Head] = []
    looked, then = 0, None
    with session.explained(using):
        for step in _until(using, choice, (0, below), LOOK_MOST, chunk=_chunk(choice, limit)):
            found += step.found
            looked, then = step.looked, step.next
            if len(found) >= limit:
                break
        if len(found) > limit:
            found, then = found[:limit], found[limit - 1].offset
        shown = [head.offset for head in found]
        told = letter_heads.heads_of(using, choice.dead_topic, shown, sizes=False)
        return LetterPage(told[::-1], then, looked)


def _chunk(choice: Choice, limit: int) -> int | None:
    return limit + 1 if choice.is_group_or_all else None


@dataclass(frozen=True)
class Count:
    """How many letters are chosen: ``is_more``: so many at least. ``groups``: of each group."""

    groups: dict[str, int]
    is_more: bool

    @property
    def number(self) -> int:
        return sum(self.groups.values())

    def __str__(self) -> str:
        return f"{self.number:,}{'+' if self.is_more else ''}"


def count(using: str, choice: Choice, up_to: int) -> Count:
    """Of all letters, or of one group's, by an index alone; else as far as the time for it goes, oldest first."""
    with session.explained(using):
        if choice.is_group_or_all:
            groups = sorted(letters.groups(using, choice.dead_topic))
            if choice.group is not None:
                groups = [group for group in groups if group == choice.group]
            pairs = [(choice.dead_topic, group) for group in groups]
            counts = figures.letters(using, pairs, COUNT_MOST) if pairs else {}
            found = {group: counts[dead, group] for dead, group in pairs if counts.get((dead, group))}
            return Count(found, any(number >= COUNT_MOST for number in found.values()))
        found, then = {}, None
        for step in _until(using, choice, (0, up_to + 1), LOOK_MOST, newest_first=False):
            for head in step.found:
                found[head.group] = found.get(head.group, 0) + 1
            then = step.next
        return Count(found, then is not None)


def registered(using: str, topic: str, groups: Collection[str]) -> set[str]:
    """Those of the groups that are registered for a topic."""
    return set(groups) & set(session.single(using, lambda cursor: garbage.starts(cursor, topic)))


def newest(using: str, dead_topic: str) -> int:
    """The offset of the newest letter; 0 where there is none."""
    with session.explained(using):
        return log.newest(using, dead_topic)


def oldest(using: str, dead_topic: str) -> int:
    """The offset of the oldest; 0 where there is none."""
    with session.explained(using):
        ends = figures.ends(using, [dead_topic])
    return ends[dead_topic].first if dead_topic in ends else 0


def one(using: str, offset: int) -> Letter | None:
    """The whole letter at an offset; None if there is none, or no more."""
    with session.explained(using):
        rows = session.single(using, lambda cursor: letters.read(cursor, [offset]))
    return Letter(rows[0], rows[0]["topic"]) if rows and rows[0]["failed_group"] is not None else None


def ids(using: str, choice: Choice) -> list[str]:
    """The original ids of letters that are chosen by their offsets, oldest first: of those that are there."""
    with session.explained(using):
        return [head.id for step in walk(using, choice, (0, END), newest_first=False) for head in step.found]


@dataclass(frozen=True)
class Step:
    """What one statement has found; ``looked`` letters in all up to now. ``next``: the last offset that was looked at,
    None at the end."""

    found: list[Head]
    looked: int
    next: int | None


def _until(
    using: str,
    choice: Choice,
    bounds: tuple[int, int],
    most: int,
    *,
    newest_first: bool = True,
    chunk: int | None = None,
) -> Iterator[Step]:
    """Steps of ``walk`` until the end, or the time for looking is over, or so many letters were looked at."""
    begun = time.monotonic()
    for step in walk(using, choice, bounds, newest_first=newest_first, chunk=chunk):
        yield step
        if step.looked >= most or time.monotonic() - begun >= LOOK:
            return


def walk(
    using: str,
    choice: Choice,
    bounds: tuple[int, int],
    *,
    newest_first: bool,
    chunk: int | None = None,
    sized: bool = False,
) -> Iterator[Step]:
    """The letters that are chosen, strictly between two offsets: step by step, also those where none of many fits."""
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


def _few(using: str, choice: Choice) -> list[int]:
    if choice.offsets is not None:
        return sorted(choice.offsets)
    groups = [choice.group] if choice.group is not None else sorted(letters.groups(using, choice.dead_topic))
    if not groups or choice.id is None:
        return []
    return [place[0] for place in history.by_original_id(using, choice.dead_topic, groups, choice.id, IDS)]


def _by_time(using: str, choice: Choice, bounds: tuple[int, int]) -> tuple[int, int]:
    """Letters come in the order of their failures, but for those whose transactions overtook each other."""
    low, high = bounds
    if choice.after is not None:
        low = max(low, above_by_time(using, choice.dead_topic, choice.after))
    if choice.before is not None:
        high = min(high, below_by_time(using, choice.dead_topic, choice.before))
    return low, high


def _by_payload(using: str, choice: Choice, heads: list[Head]) -> list[Head]:
    if choice.test is None:
        return heads
    fitting: list[Head] = []
    some: list[Head] = []
    weight = 0
    for head in [*heads, None]:
        if head is None or (some and weight + head.size > BYTES_AT_ONCE):
            fitting += _tested(using, choice, some)
            some, weight = [], 0
        if head is not None:
            some.append(head)
            weight += head.size
    return fitting


def _tested(using: str, choice: Choice, heads: list[Head]) -> list[Head]:
    if not heads:
        return []
    offsets = [head.offset for head in heads]
    rows = session.single(using, lambda cursor: letters.read(cursor, offsets))
    fit = {int(row["offset"]) for row in rows if choice.fits(Letter(row, choice.dead_topic).message)}
    return [head for head in heads if head.offset in fit]
