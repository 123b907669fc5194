"""List the distinct names in an index, of topics, partitions or groups.

A few entries are read for each name, however many rows have it.

Both servers can skip from name to name (a loose index scan), but do so only if their statistics favour it. Statistics
are averages over a whole table. If one topic has many short partitions, the server would read all rows of every other
topic. So this module first asks the server for its plan. If the plan has no loose index scan, it bisects the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...policy.batching import batches
from ..connection import session
from ..connection.dialect import flat, is_mariadb, union

GAPS, TOPICS = 100, 50
"""Maximum gaps and topics in one statement."""
FIRST, FEW, GROWTH, MOST = 64, 8, 4, 512
"""Maximum entries of a read: ``FIRST`` in the first read, then ``FEW``. If names have few entries, each read takes
``GROWTH`` times as many as the read before, up to ``MOST``. A read costs as much as some dozens of entries."""
PAGE = 2_000
SHORT = 16
"""Maximum average of entries for each name at which a gap is read with more entries."""


@dataclass(frozen=True)
class Names:
    """A column of an index. ``where`` (it ends with AND) and ``params`` fix the columns before it."""

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
        (found,) = _next(using, [self], after, limit)
        return found

    def all(self, using: str) -> Iterator[str]:
        """Yield all names, in order."""
        after = ""
        while names := self.next(using, after, PAGE):
            yield from names
            after = names[-1]


def topics_in_log(using: str) -> list[str]:
    """Return the names of all topics that have rows in the log, including dead-letter and other derived topics."""
    return list(Names("queue_messages", "queue_messages_tail", "topic", "topic").all(using))


def topics_in_offsets(using: str) -> list[str]:
    """Return the names of all topics that have a row in ``queue_offsets`` (position, registration or topic)."""
    return list(Names("queue_offsets", "queue_offsets_groups", "topic", "topic").all(using))


def partitions(topic: str) -> Names:
    """Return the names of a topic's partitions in the log."""
    return Names(
        "queue_messages", "queue_messages_partition", "partition_key", "topic, partition_key", "topic = %s AND ",
        (topic,),
    )  # fmt: skip


def first_partitions(using: str, topics: Sequence[str], limit: int) -> dict[str, list[str]]:
    """Return the names of the first ``limit`` partitions of each topic. Few statements read many topics."""
    found: dict[str, list[str]] = {}
    for some in batches(topics, TOPICS):
        found |= zip(some, _next(using, [partitions(topic) for topic in some], "", limit), strict=True)
    return found


# With ORDER BY on the offset alone, MySQL would read and sort the whole partition; with the topic also, MariaDB would.
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

    names: Names
    low: str
    high: str | None
    including: bool = False
    entries: int = FEW

    def query(self, number: int, *, last: bool) -> tuple[str, list[str]]:
        """Return the SQL, with its parameters, that reads the first entries of the gap or its last entry."""
        column, source = self.names.column, self.names.source
        above = f"{column} {'>=' if self.including else '>'} %s"
        below = "" if self.high is None else f" AND {column} < %s"
        order = f"{column} DESC LIMIT 1" if last else f"{column} LIMIT {self.entries:d}"
        return (
            f"(SELECT {number:d}, {last:d}, {column}{source}{above}{below} ORDER BY {order})",
            [*self.names.params, self.low, *([] if self.high is None else [self.high])],
        )


def _next(using: str, sources: Sequence[Names], after: str, limit: int) -> list[list[str]]:
    """Return the next ``limit`` names of each source: by a loose index scan if the server plans one, or by bisection.

    Sources differ only in ``params``. If there are several, each has one parameter.
    """
    first = sources[0]
    # With ORDER BY on all columns, or with GROUP BY, MariaDB would read all names before it applies the limit.
    distinct = (
        f"SELECT DISTINCT {first.columns}{first.source}{first.column} > %s"
        f" ORDER BY {first.column} LIMIT {limit:d}"
    )
    loose = _with_loose_scan(using, union(distinct, len(sources)), flat([*s.params, after] for s in sources))
    scanned = [source for number, source in enumerate(sources) if number in loose]
    found: dict[tuple[str, ...], list[str]] = {source.params: [] for source in scanned}
    if scanned:
        params = flat([*source.params, after] for source in scanned)
        for *fixed, name in session.fetch(using, union(distinct, len(scanned)), params):
            found[tuple(fixed)].append(str(name))
    rest = [source for source in sources if source.params not in found]
    found |= zip((source.params for source in rest), _bisect(using, rest, after, limit), strict=True)
    return [found[source.params] for source in sources]


def _with_loose_scan(using: str, sql: str, params: Sequence[str]) -> set[int]:
    """Return the branches of a UNION, counted from 0, for which the server plans a loose index scan."""
    word = "EXPLAIN" if is_mariadb(using) else "EXPLAIN FORMAT=TRADITIONAL"
    rows = session.fetch(using, f"{word} {sql}", params)
    return {int(row[0]) - 1 for row in rows if "index for group-by" in str(row[-1])}


def _bisect(using: str, sources: Sequence[Names], after: str, limit: int) -> list[list[str]]:
    """Return the next names of each source: read both ends of each gap, then divide the rest in the middle."""
    parts: list[list[str | Gap]] = [[Gap(source, after, None, entries=FIRST)] for source in sources]
    while gaps := [part for some in parts for part in some if isinstance(part, Gap)]:
        found = _read(using, gaps)
        parts = [
            list(_first((new for part in some for new in found.get(part, [part])), limit)) for some in parts
        ]
    return [[part for part in some if isinstance(part, str)] for some in parts]


def _first(parts: Iterable[str | Gap], limit: int) -> Iterator[str | Gap]:
    """Yield parts up to the ``limit``-th name. Gaps behind it need no read."""
    for part in parts:
        if isinstance(part, str):
            limit -= 1
        yield part
        if not limit:
            return


def _read(using: str, gaps: list[Gap]) -> dict[str | Gap, list[str | Gap]]:
    """Read the first gaps in one statement. Return for each of them the names and smaller gaps that replace it."""
    read = gaps[:GAPS]
    queries = [gap.query(number, last=last) for number, gap in enumerate(read) for last in (False, True)]
    entries: list[list[str]] = [[] for _ in read]
    lasts = ["" for _ in read]
    sql = " UNION ALL ".join(sql for sql, _ in queries)
    for number, last, name in session.fetch(using, sql, flat(params for _, params in queries)):
        if last:
            lasts[number] = name
        else:
            entries[number].append(name)
    return {gap: _parts(gap, some, last) for gap, some, last in zip(read, entries, lasts, strict=True)}


def _parts(gap: Gap, entries: list[str], last: str) -> list[str | Gap]:
    known = list(dict.fromkeys(entries))
    parts: list[str | Gap] = [*known]
    if len(entries) < gap.entries or last == known[-1]:
        return parts
    are_short = len(known) > 1 and SHORT * len(known) >= gap.entries
    more = min(gap.entries * GROWTH, MOST) if are_short else FEW
    low, middle = known[-1], between(known[-1], last)
    if middle is None:
        parts.append(Gap(gap.names, low, last, entries=more))
    else:
        parts.append(Gap(gap.names, low, middle, entries=more))
        parts.append(Gap(gap.names, middle, last, including=True, entries=more))
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
