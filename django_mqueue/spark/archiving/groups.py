"""A Parquet file, written in groups of rows that are neither small nor more than a task can hold in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROWS_PER_GROUP = 100_000
BYTES_PER_GROUP = 64 * 1_048_576
"""A group of rows is compressed as a whole: with its columns it is what a writer holds in memory."""

REPEATED = (
    "topic", "partition", "key", "kind", "encoding", "target", "original_topic", "failed_group", "last_error",
    "group", "delivered_to",
)  # fmt: skip
"""Columns with values that come again, kept once in each group of rows."""

WITH_BOUNDS = ("offset", "published_at", "created_at", "failed_at", "delivered_at", "done_at")
"""Columns whose bounds stand in each group of rows, so that readers can leave groups out."""


class Groups:
    """Rows come by offset, in whatever pieces. Nothing of them is whole before ``close``."""

    def __init__(self, stream: Any, schema: pa.Schema, compression: str = "zstd") -> None:
        place = schema.get_field_index("offset")
        self._writer = pq.ParquetWriter(
            stream,
            schema,
            compression=compression,
            use_dictionary=[name for name in REPEATED if name in schema.names],
            write_statistics=[name for name in WITH_BOUNDS if name in schema.names],
            sorting_columns=[pq.SortingColumn(place)] if place >= 0 else None,
        )
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self.rows = 0

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        self.rows += rows.num_rows
        self._held += rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes
        if self._held_rows >= ROWS_PER_GROUP or self._held_bytes >= BYTES_PER_GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Without what is held."""
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            # A table's groups are as large as it is, at most a million rows.
            self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=self._held_rows)
            self._held, self._held_rows, self._held_bytes = [], 0, 0
