"""List the distinct names in an index. A few entries are read for each name, however many rows have it.

Both servers can skip from name to name (a loose index scan), but do so only if their statistics favour it. Statistics
are averages over a whole table. If one topic has many short partitions, the server would read all rows of every other
topic. So this module first asks the server for its plan. If the plan has no loose index scan, it bisects the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..connection import session
from ..connection.dialect import is_mariadb

BRANCHES = 200
"""Maximum reads in one statement."""
FIRST, FEW, GROWTH, MOST = 64, 8, 4, 512
"""Entries of a read: ``FIRST`` for the first one, then ``FEW``. If names have few entries, each read has ``GROWTH``
times more, up to ``MOST``. A read costs as much as some dozens of entries."""
PAGE = 2_000
SHORT = 16
"""Maximum average of entries for each name at which a gap is read with more entries."""


@dataclass(frozen=True)
class Names:
    """A column of an index whose earlier columns are fixed by ``where``, which ends with AND, and ``params``."""

    table: str
    index: str
    column: str
    columns: str
    """The earlier columns and the column itself. A DISTINCT of all of them allows a loose index scan."""
    where: str = ""
    params: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        return f" FROM {self.table} FORCE INDEX ({self.index}) WHERE {self.where}"

    def next(self, using: str, after: str, limit: int) -> list[str]:
        """Return the next ``limit`` names after ``after``, in order."""
        # With ORDER BY on all columns, or with GROUP BY, MariaDB would read all names before it applies the limit.
        sql = (
            f"SELECT DISTINCT {self.columns}{self.source}{self.column} > %s"
            f" ORDER BY {self.column} LIMIT {limit:d}"
        )
        params = [*self.params, after]
        if _is_loose(using, sql, params):
            return [str(row[-1]) for row in session.fetch(using, sql, params)]
        return _bisect(using, self, after, limit)

    def all(self, using: str) -> Iterator[str]:
        """Yield all names, in order."""
        after = ""
        while names := self.next(using, after, PAGE):
            yield from names
            after = names[-1]

    def look(self, gap: Gap, number: int, *, last: bool) -> tuple[str, list[str]]:
        """Return the SQL, with its parameters, that reads the first entries of a gap or its last entry."""
        above = f"{self.column} {'>=' if gap.including else '>'} %s"
        below = "" if gap.high is None else f" AND {self.column} < %s"
        order = f"{self.column} DESC LIMIT 1" if last else f"{self.column} LIMIT {gap.entries:d}"
        return (
            f"(SELECT {number:d}, {last:d}, {self.column}{self.source}{above}{below} ORDER BY {order})",
            [*self.params, gap.low, *([] if gap.high is None else [gap.high])],
        )


def partitions(topic: str) -> Names:
    """Return the names of a topic's partitions in the log."""
    return Names(
        "queue_messages", "queue_messages_partition", "partition_key", "topic, partition_key", "topic = %s AND ",
        (topic,),
    )  # fmt: skip


# With ORDER BY on the offset alone, MySQL would read and sort the whole partition; with the topic, MariaDB would.
NEWEST = (
    "SELECT m.`offset` FROM queue_messages m FORCE INDEX (queue_messages_partition) WHERE m.topic = %s"
    " AND m.partition_key = p.partition_key ORDER BY m.partition_key DESC, m.`offset` DESC LIMIT 1"
)
"""A subselect for the offset of the newest message of partition ``p``. It reads one entry."""


@dataclass(frozen=True)
class Gap:
    """A range of names that is not read yet.

    ``including``: ``low`` may itself be a name. ``entries``: the number of entries that the next read returns.
    """

    low: str
    high: str | None
    including: bool = False
    entries: int = FEW


def _is_loose(using: str, sql: str, params: Sequence[str]) -> bool:
    word = "EXPLAIN" if is_mariadb(using) else "EXPLAIN FORMAT=TRADITIONAL"
    return any("index for group-by" in str(row[-1]) for row in session.fetch(using, f"{word} {sql}", params))


def _bisect(using: str, names: Names, after: str, limit: int) -> list[str]:
    """Return the next names by bisection: read both ends of each gap, then divide the rest in the middle."""
    rest: list[str | Gap] = [Gap(after, None, entries=FIRST)]
    while any(isinstance(one, Gap) for one in rest):
        found = _found(using, names, [one for one in rest if isinstance(one, Gap)])
        rest = list(_first((part for one in rest for part in found.get(one, [one])), limit))
    return [one for one in rest if isinstance(one, str)]


def _first(parts: Iterable[str | Gap], limit: int) -> Iterator[str | Gap]:
    """Yield parts up to the ``limit``-th name. Gaps behind it need no read."""
    for part in parts:
        if isinstance(part, str):
            limit -= 1
        yield part
        if not limit:
            return


def _found(using: str, names: Names, gaps: list[Gap]) -> dict[str | Gap, list[str | Gap]]:
    """Read the first gaps in one statement. Return for each of them the names and smaller gaps that replace it."""
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
    """Return a text roughly in the middle of two texts, in the order of ``utf8mb4_bin``; None if this is not certain.

    The collation ignores blanks at the end. So a character below the blank sorts before the end of a text.
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
