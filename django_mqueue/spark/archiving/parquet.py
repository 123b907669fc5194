"""Files of one table: written by offset, one for each day, and read again to see that they are what they should be."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import ArchiveError
from ..options import Table
from .files import Files
from .groups import Groups
from .layout import data_path
from .manifest import FileEntry

BYTES_PER_FILE = 512 * 1_048_576
OPEN_DAYS = 2
"""Days whose files are open at once: around midnight messages of two days alternate."""

_DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Days:
    """The files that one task makes of rows that come in the order of their offsets.

    ``schema`` is what is written of them. A context: ends with all files closed, durable and read back (an
    ``ArchiveError`` if one is not what was written), or, after an error, as good as possible without them.
    """

    def __init__(
        self, files: Files, table: Table, topic: str, batch: int, unique: str, schema: pa.Schema
    ) -> None:
        self._files, self._schema = files, schema
        self._name = (table, topic, batch, unique)
        self._open: dict[str, _File] = {}
        self._number = 0
        self.entries: list[FileEntry] = []

    def __enter__(self) -> Days:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            for date in list(self._open):
                self._close(date)
        else:
            for file in self._open.values():
                file.abandon()
            for path in [entry.path for entry in self.entries]:
                with suppress(OSError):
                    self._files.delete(path)

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows that have ``published_at``, by which they are divided."""
        days = pc.divide(batch.column("published_at").cast(pa.int64()), _DAY)
        bounds = pc.min_max(days).as_py()
        if bounds["min"] == bounds["max"]:
            self.put(_date(bounds["min"]), batch)
            return
        for day in pc.unique(days).to_pylist():
            self.put(_date(day), batch.filter(pc.equal(days, day)))

    def put(self, date: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Rows of one day."""
        if date in self._open and self._open[date].size > BYTES_PER_FILE:
            self._close(date)
        if date not in self._open:
            if len(self._open) == OPEN_DAYS:
                self._close(next(iter(self._open)))
            table, topic, number, unique = self._name
            path = data_path(table, topic, date, number, unique, self._number)
            self._number += 1
            self._open[date] = _File(self._files, path, date, self._schema)
        self._open[date].add(rows.select(self._schema.names))

    def _close(self, date: str) -> None:
        """And read it back: at once, because a round of tasks for that alone would cost more than the reading."""
        file = self._open.pop(date)
        try:
            entry = file.close()
            require(self._files, entry)
        except BaseException:
            file.abandon()
            raise
        self.entries.append(entry)


def _date(day: int) -> str:
    return (_EPOCH + timedelta(days=day)).date().isoformat()


class _File:
    def __init__(self, files: Files, path: str, date: str, schema: pa.Schema) -> None:
        self._files, self._path, self._date = files, path, date
        self._stack = ExitStack()
        self._stream = _Digesting(self._stack.enter_context(files.create(path)))
        self._groups = Groups(self._stream, schema)
        self._first = self._last = 0

    @property
    def size(self) -> int:
        return self._stream.bytes

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        self._first = self._first or rows.column("offset")[0].as_py()
        self._last = rows.column("offset")[-1].as_py()
        self._groups.add(rows)

    def close(self) -> FileEntry:
        self._groups.close()
        self._stack.close()
        return FileEntry(
            self._path,
            self._groups.rows,
            self._first,
            self._last,
            self._date,
            self.size,
            self._stream.digest(),
        )

    def abandon(self) -> None:
        """After an error: no more of it, and the file is deleted, if that can be done."""
        with suppress(OSError, pa.ArrowException):
            self._groups.abandon()
        with suppress(OSError, pa.ArrowException):
            self._stack.close()
        with suppress(OSError):
            self._files.delete(self._path)


class _Digesting:
    """A stream for writing that knows how much was written, and its checksum."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._sha256 = stream, hashlib.sha256()
        self.bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._sha256.update(data)
        self._stream.write(data)
        self.bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self.closed = True

    def digest(self) -> str:
        return self._sha256.hexdigest()


def problem(files: Files, entry: FileEntry) -> str | None:
    """What is wrong with a file: read as a whole, its rows counted, its offsets looked at. None: nothing."""
    try:
        size, digest = files.digest(entry.path)
        if size != entry.bytes:
            return f"{entry.path} has {size} bytes, not {entry.bytes}"
        if digest != entry.sha256:
            return f"{entry.path} has another checksum than when it was written"
        found = offsets_of(files, entry.path)
    except FileNotFoundError:
        return f"{entry.path} is missing"
    except (OSError, pa.ArrowException) as error:
        return f"{entry.path} cannot be read: {error}"
    if found.rows != entry.rows:
        return f"{entry.path} has {found.rows} rows, not {entry.rows}"
    if (found.first, found.last) != (entry.first, entry.last):
        return f"{entry.path} does not begin and end with offsets {entry.first} and {entry.last}"
    return None if found.are_sorted else f"{entry.path} is not sorted by offset"


@dataclass(frozen=True)
class Offsets:
    """Of the rows of a file, as they come; without any, 0 is the first and the last."""

    rows: int
    first: int
    last: int
    are_sorted: bool


def offsets_of(files: Files, path: str) -> Offsets:
    """One group of rows after the other: no more is in memory."""
    # A message has a delivery for each group.
    sorts, step = (pc.less_equal, 0) if path.startswith("deliveries/") else (pc.less, 1)
    rows, first, last, are_sorted = 0, 0, 0, True
    with files.open(path) as stream:
        file = pq.ParquetFile(stream)
        for number in range(file.num_row_groups):
            some = file.read_row_group(number, columns=["offset"]).column("offset").combine_chunks()
            if not len(some):
                continue
            begin, end = some[0].as_py(), some[-1].as_py()
            are_sorted &= pc.all(sorts(some[:-1], some[1:]), min_count=0).as_py()
            are_sorted &= not rows or begin >= last + step
            rows, first, last = rows + len(some), first if rows else begin, end
    return Offsets(rows, first, last, are_sorted)


def require(files: Files, entry: FileEntry) -> None:
    """Raise ``ArchiveError`` if a file is not what it should be."""
    if found := problem(files, entry):
        raise ArchiveError(f"read back from {files.uri}: {found}")
