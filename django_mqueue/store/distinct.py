"""The names that an index holds: a few entries of it are read for each, however many rows have the same name.

Both servers can skip from name to name (a loose index scan), but do so only where their statistics like it. These are
averages over a whole table: with many short partitions in one topic, all rows of any other topic would be read. So the
server is asked first what it means to do; where it would not skip, the names are looked for by halving.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from . import session
from .dialect import is_mariadb

BRANCHES = 200
"""Looks in one statement."""
FIRST, FEW, GROWTH, MOST = 64, 8, 4, 512
"""Entries read at the first look; then few, and more where names have few: a look costs as much as some dozens."""
PAGE = 2_000
SHORT = 16
"""Entries that a name may have on average for all of them to be read."""


@dataclass(frozen=True)
class Names:
    """A column of an index behind columns that are fixed: ``where``, a condition with its ``params``."""

    table: str
    index: str
    column: str
    columns: str
    """The fixed ones and the column itself: what makes a loose scan of a DISTINCT."""
    where: str = ""
    params: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        return f" FROM {self.table} FORCE INDEX ({self.index}) WHERE {self.where}"

    def next(self, using: str, after: str, limit: int) -> list[str]:
        """The next ``limit`` names behind ``after``, in order."""
        # Ordered by all columns, or grouped, MariaDB would go through all names before it comes to the limit.
        sql = (
            f"SELECT DISTINCT {self.columns}{self.source}{self.column} > %s"
            f" ORDER BY {self.column} LIMIT {limit:d}"
        )
        params = [*self.params, after]
        if _is_loose(using, sql, params):
            return [str(row[-1]) for row in session.fetch(using, sql, params)]
        return _halved(using, self, after, limit)

    def all(self, using: str) -> Iterator[str]:
        """All of them, in order."""
        after = ""
        while names := self.next(using, after, PAGE):
            yield from names
            after = names[-1]

    def look(self, gap: Gap, number: int, *, last: bool) -> tuple[str, list[str]]:
        """The first entries in a gap, or the last one."""
        above = f"{self.column} {'>=' if gap.including else '>'} %s"
        below = "" if gap.high is None else f" AND {self.column} < %s"
        order = f"{self.column} DESC LIMIT 1" if last else f"{self.column} LIMIT {gap.entries:d}"
        return (
            f"(SELECT {number:d}, {last:d}, {self.column}{self.source}{above}{below} ORDER BY {order})",
            [*self.params, gap.low, *([] if gap.high is None else [gap.high])],
        )


def partitions(topic: str) -> Names:
    """Of a topic, that the log holds."""
    return Names(
        "queue_messages", "queue_messages_partition", "partition_key", "topic, partition_key", "topic = %s AND ",
        (topic,),
    )  # fmt: skip


# Ordered by the offset alone, MySQL would read the whole partition and sort it; by the topic, too, MariaDB would.
NEWEST = (
    "SELECT m.`offset` FROM queue_messages m FORCE INDEX (queue_messages_partition) WHERE m.topic = %s"
    " AND m.partition_key = p.partition_key ORDER BY m.partition_key DESC, m.`offset` DESC LIMIT 1"
)
"""A partition's newest message: of ``p``, in one entry."""


@dataclass(frozen=True)
class Gap:
    """Between two names, where others may be. ``including``: ``low`` itself. ``entries``: how many to read at first."""

    low: str
    high: str | None
    including: bool = False
    entries: int = FEW


def _is_loose(using: str, sql: str, params: Sequence[str]) -> bool:
    word = "EXPLAIN" if is_mariadb(using) else "EXPLAIN FORMAT=TRADITIONAL"
    return any("index for group-by" in str(row[-1]) for row in session.fetch(using, f"{word} {sql}", params))


def _halved(using: str, names: Names, after: str, limit: int) -> list[str]:
    """By looks at both ends of what is left, and at its middle."""
    rest: list[str | Gap] = [Gap(after, None, entries=FIRST)]
    while any(isinstance(one, Gap) for one in rest):
        found = _found(using, names, [one for one in rest if isinstance(one, Gap)])
        rest = list(_first((part for one in rest for part in found.get(one, [one])), limit))
    return [one for one in rest if isinstance(one, str)]


def _first(parts: Iterable[str | Gap], limit: int) -> Iterator[str | Gap]:
    """Up to so many names: what is behind them needs no look."""
    for part in parts:
        if isinstance(part, str):
            limit -= 1
        yield part
        if not limit:
            return


def _found(using: str, names: Names, gaps: list[Gap]) -> dict[str | Gap, list[str | Gap]]:
    """For the first of the gaps what is in place of each: names, and the gaps that are left between them."""
    branches, params, asked = list[str](), list[str](), list[Gap]()
    for number, gap in enumerate(gaps):
        if len(branches) >= BRANCHES:
            break
        asked.append(gap)
        for last in (False, True):
            branch, values = names.look(gap, number, last=last)
            branches.append(branch)
            params += values
    firsts: list[list[str]] = [[] for _ in asked]
    lasts = ["" for _ in asked]
    for number, last, name in session.fetch(using, " UNION ALL ".join(branches), params):
        if last:
            lasts[number] = name
        else:
            firsts[number].append(name)
    return {gap: _parts(gap, first, last) for gap, first, last in zip(asked, firsts, lasts, strict=True)}


def _parts(gap: Gap, entries: list[str], last: str) -> list[str | Gap]:
    known = list(dict.fromkeys(entries))
    parts: list[str | Gap] = [*known]
    if len(entries) < gap.entries or last == known[-1]:
        return parts
    are_short = len(known) > 1 and SHORT * len(known) >= gap.entries
    more = min(gap.entries * GROWTH, MOST) if are_short else FEW
    low, middle = known[-1], between(known[-1], last)
    if middle is None:
        parts.append(Gap(low, last, entries=more))
    else:
        parts.append(Gap(low, middle, entries=more))
        parts.append(Gap(middle, last, including=True, entries=more))
    return [*parts, last]


_BLANK, _LAST, _SURROGATES = 0x20, 0x7F, range(0xD800, 0xE000)


def between(low: str, high: str) -> str | None:
    """A text about in the middle of two, in the order of the servers' binary collation; None where that is not sure.

    The collation takes blanks at the end for nothing, so that characters before the blank sort before the end.
    """
    if low >= high or min(low + high) < " ":
        return None
    same = next(
        (n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high))
    )
    first, end = ord(low[same]) if same < len(low) else _BLANK, ord(high[same])
    middle, at = low[:same], same
    while end - first < 2:
        middle += chr(first)
        at += 1
        first = ord(low[at]) if at < len(low) else _BLANK
        end = _LAST if first < _LAST - 1 else 0x110000
        if first == 0x10FFFF:
            return None
    code = (first + end) // 2
    middle += chr(0xD7FF if code in _SURROGATES else code)
    return middle if low < middle < high and len(middle) <= 255 and middle[-1] != " " else None
