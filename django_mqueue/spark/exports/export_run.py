"""The export run: plan a batch, let tasks write it, and at the end write a file that marks the export as complete.

Attempts of tasks write into a hidden folder, which readers ignore. When all tasks have ended, the driver renames the
files of the successful attempts. So a late attempt, of a process that was considered lost, adds nothing to the export.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from ...policy.batching import batches
from ..archives.jobs import parallelism, spread
from ..archives.parquet import FileEntry, Files
from ..archives.requests import Progress, quiet
from ..archives.storage import HIDDEN, Storage, storage_at, visible_files
from ..connecting import RetryingConnection
from ..errors import ArchiveError, ExportError
from ..reader.planning import batch, some_topics
from ..reader.ranges import Range
from ..reader.reading import read
from .requests import ExportRequest, export_request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUCCESS = "_SUCCESS"
"""The name that Hadoop's committers use. Some of them also write a JSON list of the files into it."""

RENAMES_AT_ONCE = 16
"""Number of files that are renamed at once."""

LOCK_FILE = f"{HIDDEN}naming"
"""A lock file. It exists while a run renames its files, so that no other run renames files at the same time."""

TASKS_PER_CORE = 8
"""Number of tasks for each core, between two reports of progress."""


@dataclass(frozen=True)
class Exported:
    """The number of rows, files and bytes in the folder after the export."""

    rows: int
    files: int
    bytes: int


def export(
    spark: SparkSession,
    to: str,
    *,
    options: Mapping[str, str],
    columns: Sequence[str] | None = None,
    compression: str = "zstd",
    progress: Progress | None = None,
) -> Exported:
    """Write the rows that a batch of ``format("mqueue")`` reads into Parquet files. Return how much was written.

    * ``to``: an empty or new folder: a path, or a URI in an object store.
    * ``options``: the options of ``format("mqueue")`` for a batch.
    * ``columns``: the names of the columns to write, in this order. Default: all columns; ``headers`` only with the
      option ``includeHeaders``.
    * ``compression``: zstd, snappy, gzip, lz4 or none.
    * ``progress``: called with the number of offset ranges done and the total.

    The rows do not pass through Spark's JVM. Each range of offsets becomes a file, or several files if it is larger
    than 512 MiB. The names of the files are in the order of topics and offsets. ``_SUCCESS`` is written last, and lists
    the files. If it is missing, the export was not finished. After an error the function deletes its files.

    Raises ``OptionError``, ``NoSpark`` (PySpark is not installed, or has a wrong version), ``NoConnection``,
    ``NoSuchTopic``, ``LogGap`` (messages were deleted during the export, and ``failOnDataLoss`` is not false) or
    ``ExportError`` (the folder is not empty or cannot be written, another export uses it, or a task failed).
    """
    request = export_request(options, columns, compression)
    return Run(spark, storage_at(to), request, progress or quiet).run()


class Run:
    """One export run. Call ``run`` once."""

    def __init__(
        self, spark: SparkSession, storage: Storage, request: ExportRequest, progress: Progress
    ) -> None:
        self._spark, self._storage, self._request, self._progress = spark, storage, request, progress
        self._name = uuid.uuid4().hex[:12]
        self._folder = f"{HIDDEN}writing-{self._name}"
        self._renamed: list[FileEntry] = []

    def run(self) -> Exported:
        with self._export_errors():
            self._check_empty()
        with closing(RetryingConnection(self._request.options.connecting)) as connection:
            ranges = connection.run(self._ranges)
        with self._export_errors():  # Fail before any message is read.
            probe = f"{HIDDEN}probe-{self._name}"
            self._storage.write(probe, b"")
            self._storage.delete(probe)
        try:
            entries = self._write(ranges)
            with self._export_errors():
                self._check_visible(entries)
                with self._lock_folder():
                    self._finish(entries)
        except BaseException:
            self._discard()
            raise
        finally:  # Delete the files of failed attempts.
            with suppress(OSError, pa.ArrowException):
                self._storage.discard(self._folder)
        return Exported(
            sum(entry.rows for entry in entries), len(entries), sum(entry.bytes for entry in entries)
        )

    def _ranges(self, using: str) -> list[Range | None]:
        options = self._request.options
        if options.pattern is not None:
            some_topics(using, replace(options, table="messages"))
        return [*batch(using, options)] or [None]

    def _check_empty(self) -> None:
        if files := visible_files(self._storage):
            raise ExportError(
                f"{self._storage.uri} is not empty (it holds {', '.join(files[:3])}): give an empty folder, or a new"
                f" one. An export without {SUCCESS} was not finished, and can be deleted"
            )

    def _write(self, ranges: Sequence[Range | None]) -> list[FileEntry]:
        work = partial(write_range, self._storage.uri, self._folder, self._request)
        done, entries = 0, list[FileEntry]()
        self._progress(0, len(ranges))
        for some in batches(ranges, TASKS_PER_CORE * parallelism(self._spark)):
            try:
                entries += [
                    entry for written in spread(self._spark, work, some, FileEntry) for entry in written
                ]
            except ArchiveError as error:
                raise ExportError(f"{self._storage.uri}: {error}") from error
            done += len(some)
            self._progress(done, len(ranges))
        return entries

    def _check_visible(self, entries: Sequence[FileEntry]) -> None:
        sizes = self._storage.list(self._folder)
        for entry in entries:
            if sizes.get(entry.path) != entry.bytes:
                raise ExportError(
                    f"{self._storage.uri}: the driver does not see a file that an executor has written there"
                    f" ({entry.path}, {entry.bytes:,} bytes): give a location that all machines share"
                )

    @contextmanager
    def _lock_folder(self) -> Iterator[None]:
        """Hold the lock file. Raise ``ExportError`` if another run works in this folder, or has finished in it."""
        try:
            self._storage.write(LOCK_FILE, self._name.encode())
        except FileExistsError:
            raise ExportError(
                f"{self._storage.uri}: another export is naming its files there, or was killed while it did: use one"
                f" folder for each export. If no export is running, delete {LOCK_FILE} and the other files there"
            ) from None
        try:
            self._check_empty()
            yield
        finally:
            with suppress(OSError, pa.ArrowException):
                self._storage.delete(LOCK_FILE)

    def _finish(self, entries: Sequence[FileEntry]) -> None:
        kind = "" if self._request.compression == "none" else f".{self._request.compression}"
        width = max(5, len(str(len(entries))))
        self._renamed = [
            replace(entry, path=f"part-{number:0{width}d}-{self._name}{kind}.parquet")
            for number, entry in enumerate(entries)
        ]
        with ThreadPoolExecutor(RENAMES_AT_ONCE) as pool:
            old, new = ([entry.path for entry in some] for some in (entries, self._renamed))
            list(pool.map(self._storage.move, old, new))
        try:
            self._storage.write(SUCCESS, self._summary())
        except (OSError, pa.ArrowException):
            if not self._is_complete():
                raise

    def _summary(self) -> bytes:
        files = [{"path": entry.path, "rows": entry.rows, "bytes": entry.bytes} for entry in self._renamed]
        total = {"rows": sum(entry.rows for entry in self._renamed), "files": files}
        return json.dumps(total, indent=2).encode() + b"\n"

    def _is_complete(self) -> bool:
        """Return whether ``_SUCCESS`` lists the renamed files: the write may have succeeded in spite of an error."""
        try:
            return bool(self._renamed) and self._storage.read(SUCCESS) == self._summary()
        except FileNotFoundError:
            return False

    def _discard(self) -> None:
        """Delete the renamed files, unless ``_SUCCESS`` lists them or cannot be read."""
        with suppress(OSError, pa.ArrowException):
            for entry in [] if self._is_complete() else self._renamed:
                with suppress(OSError, pa.ArrowException):
                    self._storage.delete(entry.path)

    @contextmanager
    def _export_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise ExportError(f"{self._storage.uri} cannot be written: {error}") from error


def write_range(to: str, folder: str, request: ExportRequest, task_range: Range | None) -> list[FileEntry]:
    """Write a range into files below ``folder``, on an executor. Return the files by offset."""
    schema = to_arrow_schema(request.schema, timezone="UTC")
    path = f"{folder}/{uuid.uuid4().hex}/{{number}}.parquet"
    with Files(storage_at(to), path, schema, compression=request.compression) as files:
        files.put("", schema.empty_table())  # Without rows, write one file with the columns.
        for rows in () if task_range is None else read(task_range, request.schema, request.options):
            files.put("", rows)
    return files.entries
