"""Read one range on an executor, page by page. Each page becomes one Arrow record batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from ...exceptions import LogGap
from ..connecting import RetryingConnection
from ..processes import keep_memory
from ..sql.pages import Pages
from .batches import BatchMaker, UnparsableBlock
from .options import ReadOptions
from .ranges import Range

BUDGET = 16 * 1_048_576
"""The approximate maximum size of a page of rows, in bytes. A task holds a few times as much in memory."""

ROWS, FIRST_ROWS, GROWTH = 20_000, 200, 4
"""Rows of a page: the maximum, the limit of the first page, and the factor by which the limit may grow."""

BLOCK = 4 * 1_048_576
"""The target size of a block, in bytes."""

LARGE = 16_384
"""Bytes. Rows that are larger on average are not joined into blocks."""

GAP = (
    "since the read was planned, by erase or because no group needed them. In a stream, set a 'group'; or keep messages"
    " longer (RETENTION), or set 'failOnDataLoss' to false"
)
"""The end of the error that messages were deleted."""


def read(
    task_range: Range, schema: StructType, options: ReadOptions, gap: str = GAP
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range. After a lost connection, reconnect and read the same page again.

    Raises ``LogGap``, whose text ends with ``gap``, if fewer messages are found than were planned, unless the options
    allow that.
    """
    keep_memory()
    cursor, seen = PageCursor(task_range, schema, options), 0
    with closing(RetryingConnection(options.connecting)) as connection:
        while not cursor.done:
            page = connection.run(cursor.page)
            if page is not None:
                seen += page.num_rows
                yield page
    if options.fail_on_data_loss and options.table == "messages" and seen < task_range.rows:
        raise LogGap(
            f"topic {task_range.topic!r}: {task_range.rows - seen} of the {task_range.rows} messages with offsets"
            f" {task_range.above + 1} to {task_range.upto} were deleted {gap}"
        )


@dataclass
class Planned:
    """A part of the range: its end, and the number of unread rows up to there, as planned or counted."""

    upto: int
    rows: int


class PageCursor:
    """The position of a task in its range, and the size of its next page."""

    def __init__(self, task_range: Range, schema: StructType, options: ReadOptions) -> None:
        constants = {"topic": task_range.topic}
        group = task_range.group if options.table == "deliveries" else None
        if group is not None:
            constants["group"] = group
        elif options.targets == ("",):
            constants["target"] = ""
        self._maker = BatchMaker(schema, constants)
        self._pages = Pages(task_range.topic, self._maker.fields, options.targets, group, task_range.dense)
        self._above, self._upto = task_range.above, task_range.upto
        self._planned = [Planned(task_range.upto, task_range.rows)]
        self._widest = task_range.upto - task_range.above  # The maximum number of offsets of the next block.
        self._limit = FIRST_ROWS  # The number of rows that the next page should not exceed.
        self._large = True  # Until the first page shows how large rows are.
        self._separate = False

    @property
    def done(self) -> bool:
        return self._above >= self._upto

    def page(self, using: str) -> pa.RecordBatch | None:
        """Return the next rows; None if this call found none. After an error the next call reads the same rows."""
        return self._single_rows(using) if self._large else self._block(using)

    def _block(self, using: str) -> pa.RecordBatch | None:
        """Read many rows as one block. If it cannot be parsed, change how the next call reads the same rows."""
        upto = self._above + self._step()
        block = self._pages.block(using, self._above, upto, separate=self._separate)
        try:
            page = self._maker.of_block(block) if block.rows else None
        except UnparsableBlock:
            if block.rows > 2 * self._limit:  # Too many rows for one block. Now the number is known.
                self._planned.append(Planned(upto, block.rows))
            elif not self._separate and self._maker.binaries:
                self._separate = True
            else:
                self._large, self._limit = True, max(1, self._limit // GROWTH)
            return None
        self._note(upto, block.rows, block.size)
        return page

    def _single_rows(self, using: str) -> pa.RecordBatch | None:
        rows, size = self._pages.rows(using, self._above, self._upto, self._limit, BUDGET)
        page = self._maker.of_rows(rows) if rows else None
        more = len(rows) == self._limit or size > BUDGET
        self._note(int(rows[-1][0] or 0) if more else self._upto, len(rows), size)
        return page

    def _step(self) -> int:
        """Return how many offsets the next block has, by the plan, but no more than the last page suggests."""
        planned = self._planned[-1]
        rest = planned.upto - self._above
        return min(rest, max(1, min(self._limit * rest // max(1, planned.rows), self._widest)))

    def _note(self, upto: int, rows: int, size: int) -> None:
        """Note that everything up to this offset was read, in so many rows and bytes."""
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
