"""The log cut into pieces and counted, by its index alone: a long stretch by several connections at once.

Tasks wait for that, however many they are. So what is long is counted in spans, which who plans and a few helpers, each
with a connection of its own, take one after the other.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

from django.db import DatabaseError, InterfaceError

from ..store import bulk
from .connecting import Connecting, connected
from .errors import NoConnection
from .priority import gives_way
from .ranges import Piece

STEP = 10_000
"""Rows between two looks at the index."""

WAYS = 4
"""Connections that count at once, at most."""

SPAN, SPANS = 100_000, 64
"""Offsets that a span has at least, and spans of a stretch at most."""

Stretch = tuple[str, int, int]
"""Topic, above, up to."""


def counted(
    using: str,
    how: Connecting,
    stretches: Sequence[Stretch],
    step: int,
    targets: Sequence[str] | None,
    *,
    ways: int = WAYS,
) -> list[list[Piece]]:
    """For each stretch its pieces, of ``step`` rows but for the last of each span; what is empty has none.

    ``ways``: connections that may count at once; one where this process gives way. What a helper cannot do, for want
    of a connection say, is done without it.
    """
    ways = 1 if gives_way() else ways
    spans = [(place, span) for place, stretch in enumerate(stretches) for span in _spans(stretch, ways)]
    found: list[list[Piece]] = [[] for _ in spans]
    left, ended = deque(range(len(spans))), threading.Event()

    def count(alias: str) -> None:
        while True:
            try:
                number = left.popleft()
            except IndexError:
                return
            some = []
            try:
                for piece in _pieces(alias, spans[number][1], step, targets):
                    some.append(piece)
                    if ended.is_set():
                        return
            except BaseException:
                left.append(number)
                raise
            found[number] = some

    def help() -> None:
        with suppress(DatabaseError, InterfaceError, NoConnection), connected(how) as alias:
            count(alias)

    with ThreadPoolExecutor(ways) as pool:
        try:
            for _ in range(_helpers(spans, ways)):
                pool.submit(help)
            count(using)
        except BaseException:
            left.clear()
            ended.set()  # A span may take long.
            raise
    count(using)  # What helpers gave back.
    pieces: list[list[Piece]] = [[] for _ in stretches]
    for (place, _), some in zip(spans, found, strict=True):
        pieces[place] += some
    return pieces


def _helpers(spans: Sequence[tuple[int, Stretch]], ways: int) -> int:
    offsets = sum(upto - above for _, (_, above, upto) in spans)
    return max(0, min(ways, len(spans), offsets // SPAN) - 1)


def _spans(stretch: Stretch, ways: int) -> Iterator[Stretch]:
    topic, above, upto = stretch
    number = max(1, min(SPANS, (upto - above) // SPAN)) if ways > 1 else 1
    ends = [above + (upto - above) * end // number for end in range(number + 1)]
    for first, last in pairwise(ends):
        yield topic, first, last


def _pieces(using: str, stretch: Stretch, step: int, targets: Sequence[str] | None) -> Iterator[Piece]:
    topic, above, upto = stretch
    while above < upto:
        end = bulk.nth_above(using, topic, above, upto, step, targets)
        if end is None:
            if rest := bulk.count(using, topic, above, upto, targets):
                yield Piece(topic, above, upto, rest)
            return
        yield Piece(topic, above, end, step)
        above = end
