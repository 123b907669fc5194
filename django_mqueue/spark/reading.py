"""Reading one range, on an executor: page by page, each page a batch of Arrow's."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from django.db import DatabaseError, InterfaceError

from ..exceptions import LogGap
from ..store import bulk, session
from ..store.session import Row
from .columns import Batches
from .connecting import connected
from .options import ReadOptions
from .planning import Range

BUDGET = 16 * 1_048_576
"""Bytes that a page may have, about: what a task holds in memory at once is a few times that."""

ROWS, FIRST_ROWS = 20_000, 1_000
ATTEMPTS = 3
"""Of a page whose connection was lost."""


def read(wanted: Range, batches: Batches, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a range. Raises ``LogGap`` if it has fewer than were planned, unless that is allowed."""
    seen, above, limit, failures = 0, wanted.piece.above, FIRST_ROWS, 0
    while above < wanted.piece.upto:
        with connected(options.connecting) as using:
            try:
                while above < wanted.piece.upto:
                    rows, size = _page(using, wanted, batches, options, above, limit)
                    more = len(rows) == limit or size > BUDGET
                    seen += len(rows)
                    above = int(rows[-1][0]) if more else wanted.piece.upto
                    limit = max(
                        1, min(ROWS, 4 * limit, len(rows) * BUDGET // (2 * size or 1)) if rows else limit
                    )
                    failures = 0
                    if rows:
                        yield batches.of(rows)
            except (DatabaseError, InterfaceError) as error:
                failures += 1
                if not session.passes(error) or failures == ATTEMPTS:
                    raise
    if options.fail_on_data_loss and options.table == "messages" and not options.targeted:
        _check_whole(wanted, seen)


def _page(
    using: str, wanted: Range, batches: Batches, options: ReadOptions, above: int, limit: int
) -> tuple[list[Row], int]:
    topic, upto = wanted.piece.topic, wanted.piece.upto
    if options.table == "deliveries":
        return bulk.deliveries(using, batches.names, topic, wanted.group, above, upto, limit, BUDGET)
    return bulk.messages(
        using,
        batches.names,
        topic,
        above,
        upto,
        options.targets,
        limit,
        BUDGET,
        dense=wanted.piece.dense,
    )


def _check_whole(wanted: Range, seen: int) -> None:
    piece = wanted.piece
    if seen < piece.rows:
        raise LogGap(
            f"topic {piece.topic!r}: {piece.rows - seen} of the {piece.rows} messages with offsets {piece.above + 1} to"
            f" {piece.upto} were deleted since the read was planned: deletion waits for registered groups alone. Read"
            " as a stream with a 'group', keep messages longer (RETENTION), or set 'failOnDataLoss' to false"
        )
