"""The Parquet files of one table: written by offset, at least one for each day, then read back and checked."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import ArchiveError
from ..reader.options import Table
from .storage import Storage

BYTES_PER_FILE = 512 * 1_048_576
OPEN_DAYS = 2
"""Maximum number of days whose files are open at once. Around midnight, messages of two days alternate."""

ROWS_PER_GROUP = 100_000
BYTES_PER_GROUP = 64 * 1_048_576
"""Limits of a row group. A writer holds one row group in memory, because it compresses the group as a whole."""

REPEATED = (
    "topic", "partition", "key", "kind", "encoding", "target", "original_topic", "failed_group", "last_error",
    "group", "delivered_to",
)  # fmt: skip
"""Columns with repeated values. A dictionary in each row group stores each value once."""

WITH_BOUNDS = ("offset", "published_at", "created_at", "failed_at", "delivered_at", "done_at")
"""Columns whose minimum and maximum each row group stores, so that readers can skip row groups."""

_DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class FileEntry:
    """A file of an archive.

    ``path`` is relative to the archive. ``date`` is in UTC. ``first`` and ``last`` are the offsets of the first and the
    last row.
    """

    path: str
    topic: str
    date: str
    rows: int
    first: int
    last: int
    bytes: int


def folder_of(topic: str) -> str:
    """Return the name of a topic's folder: a readable part, and a digest that makes it unique to the topic.

    It has no characters that a URL quotes, because tools disagree about quoted paths of Delta tables.
    """
    name = re.sub("[^A-Za-z0-9]+", "-", topic).strip("-")[:60]
    return f"{name}-{blake2b(topic.encode(), digest_size=6).hexdigest()}".lstrip("-")


class Days:
    """The files that a task writes. The rows arrive in the order of their offsets.

    ``schema``: the columns to write. ``unique``: a name that differs for each attempt of each task.

    This is a context manager. At its end all files are closed, durable and read back; it raises ``ArchiveError`` if a
    file is not what was written. After an error in the block it deletes the files, if the storage allows it.
    """

    def __init__(self, storage: Storage, table: Table, topic: str, unique: str, schema: pa.Schema) -> None:
        self._storage, self._table, self._topic = storage, table, topic
        self._unique, self._schema = unique, schema
        self._open: dict[str, NewFile] = {}
        self._number = 0
        self.entries: list[FileEntry] = []

    def __enter__(self) -> Days:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._abandon()
            return
        try:
            for date in list(self._open):
                self._close(date)
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        for file in self._open.values():
            file.abandon()
        for entry in self.entries:
            with suppress(OSError):
                self._storage.delete(entry.path)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows with a column ``published_at``, and divide them by its day in UTC."""
        days = pc.divide(batch.column("published_at").cast(pa.int64()), _DAY)
        bounds = pc.min_max(days).as_py()
        if bounds["min"] == bounds["max"]:
            self.put(_date(bounds["min"]), batch)
            return
        for day in pc.unique(days).to_pylist():
            self.put(_date(day), batch.filter(pc.equal(days, day)))

    def put(self, date: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Add rows of one day."""
        if date in self._open and self._open[date].is_full:
            self._close(date)
        if date not in self._open:
            if len(self._open) == OPEN_DAYS:
                self._close(next(iter(self._open)))
            # Polars reads partition values from such folder names (date=…), if a folder has one.
            folder = f"{self._table}/{folder_of(self._topic)}/date={date}"
            path = f"{folder}/{self._unique}-{self._number}.parquet"
            self._number += 1
            self._open[date] = NewFile(self._storage, path, self._schema)
        self._open[date].add(rows.select(self._schema.names))

    def _close(self, date: str) -> None:
        file = self._open.pop(date)
        try:
            file.close()
        except BaseException:
            file.abandon()
            raise
        entry = FileEntry(file.path, self._topic, date, file.rows, file.first, file.last, file.bytes)
        self.entries.append(entry)


def _date(day: int) -> str:
    return (_EPOCH + timedelta(days=day)).date().isoformat()


class NewFile:
    """A Parquet file that is being written. Rows arrive in batches of any size.

    ``first`` and ``last``: the offsets of the first and the last row, if the file has offsets.
    """

    def __init__(self, storage: Storage, path: str, schema: pa.Schema, compression: str = "zstd") -> None:
        self.path, self.rows, self.first, self.last = path, 0, 0, 0
        self._storage, self._stack = storage, ExitStack()
        self._output = self._stack.enter_context(storage.create(path))
        self._offset = schema.get_field_index("offset")
        self._writer = pq.ParquetWriter(
            self._output,
            schema,
            compression=compression,
            use_dictionary=[name for name in REPEATED if name in schema.names],
            write_statistics=[name for name in WITH_BOUNDS if name in schema.names],
            write_page_checksum=True,
            sorting_columns=[pq.SortingColumn(self._offset)] if self._offset >= 0 else None,
        )
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0

    @property
    def bytes(self) -> int:
        return int(self._output.bytes)

    @property
    def is_full(self) -> bool:
        return self.rows > 0 and self.bytes > BYTES_PER_FILE

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        if self._offset >= 0:
            offsets = rows.column(self._offset)
            self.first, self.last = self.first or offsets[0].as_py(), offsets[-1].as_py()
        self.rows += rows.num_rows
        self._held += rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes
        if self._held_rows >= ROWS_PER_GROUP or self._held_bytes >= BYTES_PER_GROUP:
            self._flush()

    def close(self) -> None:
        """Make the file durable, and read it back. Raise ``ArchiveError`` if its bytes are not the written bytes."""
        self._flush()
        self._writer.close()
        self._stack.close()
        size = crc = 0
        with self._storage.open(self.path) as stream:
            while data := stream.read(1 << 22):
                size, crc = size + len(data), zlib.crc32(data, crc)
        if (size, crc) != (self._output.bytes, self._output.crc):
            raise ArchiveError(
                f"{self._storage.uri}: the stored content of {self.path} differs from what was written"
            )

    def abandon(self) -> None:
        """Stop writing after an error, and delete the file if the storage allows it."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError, pa.ArrowException, _Abandoned), self._stack:
            raise _Abandoned
        with suppress(OSError):
            self._storage.delete(self.path)

    def _flush(self) -> None:
        if self._held:
            # Write one row group. Without this size, pyarrow splits a table after a million rows.
            self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=self._held_rows)
            self._held, self._held_rows, self._held_bytes = [], 0, 0


class _Abandoned(Exception):
    """Raised inside the context of a file, so that the storage does not keep the file."""


def problem(storage: Storage, entry: FileEntry) -> str | None:
    """Read all of a file, compare its checksums, and return the problem found, or None."""
    try:
        with storage.open(entry.path) as stream:
            if (size := stream.size()) != entry.bytes:
                return f"{entry.path} has {size} bytes, not {entry.bytes}"
            found = offsets_of(stream, by_group=entry.path.startswith("deliveries/"))
    except FileNotFoundError:
        return f"{entry.path} is missing"
    except (OSError, ValueError, pa.ArrowException) as error:
        return f"{entry.path} cannot be read: {error}"
    if found.rows != entry.rows:
        return f"{entry.path} has {found.rows} rows, not {entry.rows}"
    if (found.first, found.last) != (entry.first, entry.last):
        return f"{entry.path} does not begin and end with offsets {entry.first} and {entry.last}"
    return None if found.are_sorted else f"{entry.path} is not sorted, or contains a row twice"


@dataclass(frozen=True)
class Offsets:
    """The offsets of a file's rows, in the order of the file. Without rows, ``first`` and ``last`` are 0.

    ``are_sorted``: the rows are sorted, and no row exists twice.
    """

    rows: int
    first: int
    last: int
    are_sorted: bool


def offsets_of(stream: Any, *, by_group: bool) -> Offsets:
    """Read all columns, one row group after the other. ``by_group``: rows of an offset are sorted by their group."""
    rows, first, are_sorted = 0, 0, True
    before: pa.Table | None = None
    for found in row_groups(stream):
        some = found.select(["offset", "group"] if by_group else ["offset"])
        offsets = some.column("offset")
        rows, first = rows + len(offsets), first if rows else offsets[0].as_py()
        are_sorted &= _increases(some if before is None else pa.concat_tables([before, some]))
        before = some.slice(len(offsets) - 1)
    return Offsets(rows, first, before.column("offset")[0].as_py() if before else 0, are_sorted)


def _increases(rows: pa.Table) -> bool:
    """Return whether each row is greater than the row before it."""
    above, below = (rows.slice(1).combine_chunks(), rows.slice(0, rows.num_rows - 1).combine_chunks())
    found = pc.greater(above["offset"], below["offset"])
    if "group" in rows.schema.names:
        equal = pc.equal(above["offset"], below["offset"])
        found = pc.or_(found, pc.and_(equal, pc.greater(above["group"], below["group"])))
    return bool(pc.all(found, min_count=0).as_py())


def row_groups(stream: Any, schema: pa.Schema | None = None) -> Iterator[pa.Table]:
    """Yield the row groups of a file, and compare their checksums. ``schema``: the columns to return."""
    file = pq.ParquetFile(stream, page_checksum_verification=True)
    for number in range(file.num_row_groups):
        found = file.read_row_group(number)
        if found.num_rows:
            yield found if schema is None else conformed(found, schema)


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns of ``schema``. A column that an older file does not have is null."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
