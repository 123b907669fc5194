"""Reading one range, on an executor: page by page, each page a batch of Arrow's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from ..exceptions import LogGap
from ..store.pages import Pages
from .batches import Batches, Unclear
from .connecting import Line
from .options import ReadOptions
from .processes import keep_memory
from .ranges import Range

BUDGET = 16 * 1_048_576
"""Bytes that a page of rows may have, about: what a task holds in memory at once is a few times that."""

ROWS, FIRST_ROWS, GROWTH = 20_000, 200, 4
BLOCK = 4 * 1_048_576
"""Bytes that a block should have, about."""

LARGE = 16_384
"""Bytes of a row in the mean, from which on rows are not joined into blocks."""


def read(wanted: Range, batches: Batches, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a range. Raises ``LogGap`` if it has fewer than were planned, unless that is allowed.

    A server that goes away is waited for, as ``Line`` does: the same page is read again.
    """
    keep_memory()
    reader, line, seen = Reader(wanted, batches, options), Line(options.connecting), 0
    try:
        while not reader.done:
            page = line.run(reader.page)
            if page is not None:
                seen += page.num_rows
                yield page
    finally:
        line.close()
    if options.fail_on_data_loss and options.table == "messages":
        _check_whole(wanted, seen)


@dataclass
class Planned:
    """``rows``: how many are left up to an offset, as far as that is known."""

    upto: int
    rows: int


class Reader:
    """Where in its range a task is, and how large the next page may be."""

    def __init__(self, wanted: Range, batches: Batches, options: ReadOptions) -> None:
        piece = wanted.piece
        constants = {"topic": piece.topic}
        if options.table == "deliveries":
            constants["group"] = wanted.group
        elif options.targets == ("",):
            constants["target"] = ""
        self._made = batches.maker(constants)
        group = wanted.group if options.table == "deliveries" else None
        self._pages = Pages(piece.topic, self._made.fields, options.targets, group, piece.dense)
        self._above, self._upto = piece.above, piece.upto
        self._planned = [Planned(piece.upto, piece.rows)]
        self._widest = piece.upto - piece.above
        self._limit = FIRST_ROWS
        self._large = True  # As long as nothing is known.
        self._apart = False

    @property
    def done(self) -> bool:
        return self._above >= self._upto

    def page(self, using: str) -> pa.RecordBatch | None:
        """The next rows, if any are found where they might be. After an error the same are read again."""
        if not self._large:
            upto = self._above + self._step()
            block = self._pages.block(using, self._above, upto, apart=self._apart)
            try:
                page = self._made.of_block(block) if block.rows else None
            except Unclear:
                if block.rows > 2 * self._limit:  # Cut off for their number, which is known now.
                    self._planned.append(Planned(upto, block.rows))
                    return None
                if not self._apart and self._made.lumps:
                    self._apart = True
                    return None
                self._large, self._limit = True, max(1, self._limit // GROWTH)
            else:
                self._note(upto, block.rows, block.size)
                return page
        rows, size = self._pages.rows(using, self._above, self._upto, self._limit, BUDGET)
        page = self._made.of_rows(rows) if rows else None
        more = len(rows) == self._limit or size > BUDGET
        self._note(int(rows[-1][0] or 0) if more else self._upto, len(rows), size)
        return page

    def _step(self) -> int:
        """How many offsets the next block is to have: by what is planned, but no wider than the last page suggests."""
        planned = self._planned[-1]
        rest = planned.upto - self._above
        return min(rest, max(1, min(self._limit * rest // max(1, planned.rows), self._widest)))

    def _note(self, upto: int, rows: int, size: int) -> None:
        """All up to there was read, in so many rows and bytes."""
        offsets, self._above = upto - self._above, upto
        for planned in self._planned:
            planned.rows -= rows
        while len(self._planned) > 1 and self._planned[-1].upto <= upto:
            self._planned.pop()
        if rows:
            self._large = size > LARGE * rows
            fitting = rows * (BUDGET // 2 if self._large else BLOCK) // (size or 1)
            self._limit = max(1, min(ROWS, GROWTH * self._limit, fitting))
        self._widest = offsets * min(GROWTH * max(1, rows), self._limit) // max(1, rows)


def _check_whole(wanted: Range, seen: int) -> None:
    piece = wanted.piece
    if seen < piece.rows:
        raise LogGap(
            f"topic {piece.topic!r}: {piece.rows - seen} of the {piece.rows} messages with offsets {piece.above + 1} to"
            f" {piece.upto} were deleted since the read was planned: deletion waits for registered groups alone. Read"
            " as a stream with a 'group', keep messages longer (RETENTION), or set 'failOnDataLoss' to false"
        )
