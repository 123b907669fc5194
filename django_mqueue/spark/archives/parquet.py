"""Write the Parquet files of a table: at least one for each day, sorted by offset. Read files and check them."""

from __future__ import annotations

import re
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import date, timedelta
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..connecting import ConnectionParameters
from ..errors import ArchiveError
from ..reader.columns import schema_of
from ..reader.options import ReadOptions, Table
from .storage import Output, Storage

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

MICROSECONDS_OF_DAY = 86_400_000_000


@dataclass(frozen=True)
class FileEntry:
    """A file of an archive. ``path`` is relative to the archive. ``first`` and ``last``: its offsets."""

    path: str
    topic: str
    date: str
    rows: int
    first: int
    last: int
    bytes: int

    @property
    def in_table(self) -> str:
        """The path relative to the folder of its table."""
        return self.path.partition("/")[2]

    @property
    def partition(self) -> dict[str, str]:
        return {"topic": self.topic, "date": self.date}


def clusters(entries: Iterable[FileEntry]) -> Iterator[list[FileEntry]]:
    """Yield groups of files whose offsets overlap. ``entries`` are sorted by first offset."""
    cluster: list[FileEntry] = []
    last = 0
    for entry in entries:
        if cluster and entry.first > last:
            yield cluster
            cluster = []
        cluster.append(entry)
        last = max(last, entry.last)
    if cluster:
        yield cluster


def sorted_by(table: str) -> list[str]:
    """Return the columns by which the rows of a table's files are sorted."""
    return ["offset", "group"] if table == "deliveries" else ["offset"]


def schema(table: Table) -> StructType:
    """Return all columns of a table, as Spark types."""
    return schema_of(ReadOptions(ConnectionParameters(), table=table, include_headers=True))


def arrow_schema(table: Table) -> pa.Schema:
    """Return the columns of the files of a table, as Arrow types."""
    return to_arrow_schema(schema(table), timezone="UTC")


def folder_of(topic: str) -> str:
    """Return a topic's unique folder name, without characters that URLs quote: tools disagree about these."""
    name = re.sub("[^A-Za-z0-9]+", "-", topic).strip("-")[:60]
    return f"{name}-{blake2b(topic.encode(), digest_size=6).hexdigest()}".lstrip("-")


class Files:
    """The files that a task writes. The rows arrive in the order of their offsets.

    This is a context manager. At its end all files are closed, durable and read back. After an error it deletes them.
    ``path``: the pattern of the files' paths, with ``{number}`` and perhaps ``{date}``. It must differ for each
    attempt of each task.
    ``most``: the bytes after which a new file begins. Default: ``BYTES_PER_FILE``.
    """

    def __init__(
        self,
        storage: Storage,
        path: str,
        schema: pa.Schema,
        topic: str = "",
        *,
        compression: str = "zstd",
        most: int | None = None,
    ) -> None:
        self._storage, self._path, self._schema = storage, path, schema
        self._topic, self._compression, self._most = topic, compression, most or BYTES_PER_FILE
        self._open: dict[str, NewFile] = {}
        self.entries: list[FileEntry] = []

    def __enter__(self) -> Files:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                for day in list(self._open):
                    self._close(day)
                return
        except BaseException:
            self._abandon()
            raise
        self._abandon()

    def _abandon(self) -> None:
        for file in self._open.values():
            file.abandon()
        for entry in self.entries:
            with suppress(OSError):
                self._storage.delete(entry.path)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows with a column ``published_at``, and divide them by its day in UTC."""
        days = pc.divide(batch.column("published_at").cast(pa.int64()), MICROSECONDS_OF_DAY)
        different = pc.unique(days).to_pylist()
        for day in different:
            some = batch if len(different) == 1 else batch.filter(pc.equal(days, day))
            self.put((date(1970, 1, 1) + timedelta(days=day)).isoformat(), some)

    def put(self, day: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Add rows of one day."""
        if day in self._open and self._open[day].output.bytes > self._most and self._open[day].rows:
            self._close(day)
        if day not in self._open:
            if len(self._open) == OPEN_DAYS:
                self._close(next(iter(self._open)))
            path = self._path.format(date=day, number=len(self.entries) + len(self._open))
            self._open[day] = NewFile(self._storage, path, self._schema, self._compression)
        self._open[day].add(rows.select(self._schema.names))

    def _close(self, day: str) -> None:
        file = self._open[day]
        file.close()
        del self._open[day]
        size = file.output.bytes
        self.entries.append(FileEntry(file.path, self._topic, day, file.rows, file.first, file.last, size))


def files_of(storage: Storage, table: Table, topic: str, schema: pa.Schema, most: int | None = None) -> Files:
    """Return new files of a topic's table, with names that no other attempt of a task uses."""
    # Polars takes partition values from folder names such as date=….
    path = f"{table}/{folder_of(topic)}/date={{date}}/{uuid.uuid4().hex}-{{number}}.parquet"
    return Files(storage, path, schema, topic, most=most)


class NewFile:
    """A Parquet file that is being written. ``first`` and ``last``: offsets; 0 if the file has no offsets."""

    def __init__(self, storage: Storage, path: str, schema: pa.Schema, compression: str) -> None:
        self.path, self.rows, self.first, self.last = path, 0, 0, 0
        self._storage, self._stack = storage, ExitStack()
        self.output: Output = self._stack.enter_context(storage.create(path))
        self._offset = schema.get_field_index("offset")
        self._writer = pq.ParquetWriter(
            self.output,
            schema,
            compression=compression,
            use_dictionary=[name for name in REPEATED if name in schema.names],
            write_statistics=[name for name in WITH_BOUNDS if name in schema.names],
            write_page_checksum=True,
            sorting_columns=[pq.SortingColumn(self._offset)] if self._offset >= 0 else None,
        )
        self._buffer: list[pa.RecordBatch] = []
        self._buffered_rows = self._buffered_bytes = 0

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        if self._offset >= 0 and rows.num_rows:
            offsets = rows.column(self._offset)
            self.first, self.last = self.first or offsets[0].as_py(), offsets[-1].as_py()
        self.rows += rows.num_rows
        self._buffer += rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        self._buffered_rows += rows.num_rows
        self._buffered_bytes += rows.nbytes
        if self._buffered_rows >= ROWS_PER_GROUP or self._buffered_bytes >= BYTES_PER_GROUP:
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
        if (size, crc) != (self.output.bytes, self.output.crc):
            raise ArchiveError(
                f"{self._storage.uri}: the stored content of {self.path} differs from what was written"
            )

    def abandon(self) -> None:
        """Stop writing after an error, and delete the file if possible."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError, pa.ArrowException), self._stack:
            raise InterruptedError  # So that the storage does not complete the file.
        with suppress(OSError):
            self._storage.delete(self.path)

    def _flush(self) -> None:
        if self._buffer:
            # Write one row group. Without this size, pyarrow splits a table after a million rows.
            self._writer.write_table(pa.Table.from_batches(self._buffer), row_group_size=self._buffered_rows)
            self._buffer, self._buffered_rows, self._buffered_bytes = [], 0, 0


def problem(storage: Storage, entry: FileEntry) -> str | None:
    """Read and check all of a file. Return the first problem, or None."""
    by = sorted_by(entry.path.partition("/")[0])
    rows, first, last, are_sorted = 0, 0, 0, True
    before: pa.Table | None = None
    try:
        with storage.open(entry.path) as stream:
            if (size := stream.size()) != entry.bytes:
                return f"{entry.path} has {size} bytes, not {entry.bytes}"
            for found in row_groups(stream):
                some = found.select(by)
                first = first if rows else some["offset"][0].as_py()
                rows, last = rows + some.num_rows, some["offset"][-1].as_py()
                are_sorted &= _increases(some if before is None else pa.concat_tables([before, some]))
                before = some.slice(some.num_rows - 1)
    except FileNotFoundError:
        return f"{entry.path} is missing"
    except (OSError, ValueError, pa.ArrowException) as error:
        return f"{entry.path} cannot be read: {error}"
    if rows != entry.rows:
        return f"{entry.path} has {rows} rows, not {entry.rows}"
    if (first, last) != (entry.first, entry.last):
        return f"{entry.path} does not begin and end with offsets {entry.first} and {entry.last}"
    return None if are_sorted else f"{entry.path} is not sorted, or contains a row twice"


def _increases(rows: pa.Table) -> bool:
    """Return whether each row is greater than the row before it."""
    above, below = (rows.slice(1).combine_chunks(), rows.slice(0, rows.num_rows - 1).combine_chunks())
    found = pc.greater(above["offset"], below["offset"])
    if "group" in rows.schema.names:
        equal = pc.equal(above["offset"], below["offset"])
        found = pc.or_(found, pc.and_(equal, pc.greater(above["group"], below["group"])))
    return bool(pc.all(found, min_count=0).as_py())


def row_groups(stream: Any, schema: pa.Schema | None = None) -> Iterator[pa.Table]:
    """Yield the row groups of a file, after verifying their checksums. ``schema``: the columns to return."""
    file = pq.ParquetFile(stream, page_checksum_verification=True)
    for number in range(file.num_row_groups):
        found = file.read_row_group(number)
        if found.num_rows:
            yield found if schema is None else conformed(found, schema)


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns of ``schema``. A column that an older file does not have is null."""
    whole = pa.concat_tables([table, schema.empty_table()], promote_options="permissive")
    return whole.select(schema.names).cast(schema)
