"""The export run: plan a batch, let tasks write it, and at the end write a file that marks the export as complete.

Attempts of tasks write into a hidden folder, which readers ignore. When all tasks have ended, the driver renames the
files of the successful attempts. So a late attempt, of a process that was considered lost, adds nothing to the export.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ..archives.jobs import parallelism, spread
from ..archives.requests import Progress
from ..archives.storage import HIDDEN, Storage, held
from ..connecting import RetryingConnection
from ..errors import ArchiveError, ExportError
from ..reader.planning import batch, some_topics
from ..reader.ranges import Range
from .requests import ExportRequest
from .tasks import Written, writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUCCESS = "_SUCCESS"
"""The name that Hadoop's committers use. Some of them also write a JSON list of the files into it."""

MOVERS = 16
"""Number of files that are renamed at once."""

NAMING = f"{HIDDEN}naming"
"""A lock file. It exists while a run renames its files, so that no other run does."""

ROUND = 8
"""Number of tasks for each core, between two reports of progress."""


@dataclass(frozen=True)
class Exported:
    """The number of rows, files and bytes in the folder after the export."""

    rows: int
    files: int
    bytes: int


class Run:
    """One export run. Call ``run`` once."""

    def __init__(
        self, spark: SparkSession, storage: Storage, wanted: ExportRequest, progress: Progress
    ) -> None:
        self._spark, self._storage, self._wanted, self._progress = spark, storage, wanted, progress
        self._name = uuid.uuid4().hex[:12]
        self._folder = f"{HIDDEN}writing-{self._name}"
        self._named: list[Written] = []

    def run(self) -> Exported:
        with self._told():
            self._check_free()
        line = RetryingConnection(self._wanted.options.connecting)
        try:
            ranges = line.run(self._ranges)
        finally:
            line.close()
        with self._told():
            self._check_writable()
        try:
            found = self._written(ranges)
            with self._told():
                self._check_seen(found)
                with self._alone():
                    self._finish(found)
        except BaseException:
            self._discard()
            raise
        self._tidy()
        return Exported(sum(one.rows for one in found), len(found), sum(one.bytes for one in found))

    def _ranges(self, using: str) -> list[Range | None]:
        options = self._wanted.options
        if options.pattern is not None:
            some_topics(using, replace(options, table="messages"))
        return [*batch(using, options)] or [None]

    def _check_free(self) -> None:
        if there := held(self._storage):
            raise ExportError(
                f"{self._storage.uri} is not empty (it holds {', '.join(there[:3])}): give an empty folder, or a new"
                f" one. An export without {SUCCESS} was not finished, and can be deleted"
            )

    def _check_writable(self) -> None:
        """Raise an error if the folder cannot be written, before any message is read."""
        probe = f"{HIDDEN}probe-{self._name}"
        self._storage.write(probe, b"")
        self._storage.delete(probe)

    def _written(self, ranges: Sequence[Range | None]) -> list[Written]:
        work = writing(self._storage.uri, self._folder, self._wanted)
        done, found, at_once = 0, list[Written](), ROUND * parallelism(self._spark)
        self._progress(0, len(ranges))
        while done < len(ranges):
            some = ranges[done : done + at_once]
            try:
                found += [one for made in spread(self._spark, work, some, Written) for one in made]
            except ArchiveError as error:
                raise ExportError(f"{self._storage.uri}: {error}") from error
            done += len(some)
            self._progress(done, len(ranges))
        return found

    def _check_seen(self, found: Sequence[Written]) -> None:
        there = {each.path: each.bytes for each in self._storage.list(self._folder)}
        for one in found:
            if there.get(one.path) != one.bytes:
                raise ExportError(
                    f"{self._storage.uri}: the driver does not see a file that an executor has written there"
                    f" ({one.path}, {one.bytes:,} bytes): give a location that all machines share"
                )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock file. Raise ``ExportError`` if another run works in this folder, or has finished in it."""
        try:
            self._storage.write(NAMING, self._name.encode())
        except FileExistsError:
            raise ExportError(
                f"{self._storage.uri}: another export is naming its files there, or was killed while it did: use one"
                f" folder for each export. If no export is running, delete {NAMING} and the other files there"
            ) from None
        try:
            self._check_free()
            yield
        finally:
            with suppress(OSError, pa.ArrowException):
                self._storage.delete(NAMING)

    def _finish(self, found: Sequence[Written]) -> None:
        kind = "" if self._wanted.compression == "none" else f".{self._wanted.compression}"
        width = max(5, len(str(len(found))))
        self._named = [
            replace(one, path=f"part-{number:0{width}d}-{self._name}{kind}.parquet")
            for number, one in enumerate(found)
        ]
        with ThreadPoolExecutor(MOVERS) as pool:
            list(pool.map(self._storage.move, [one.path for one in found], [one.path for one in self._named]))
        try:
            self._storage.write(SUCCESS, self._said())
        except (OSError, pa.ArrowException):
            if not self._counts():
                raise

    def _said(self) -> bytes:
        told = {"rows": sum(one.rows for one in self._named), "files": [asdict(one) for one in self._named]}
        return json.dumps(told, indent=2).encode() + b"\n"

    def _counts(self) -> bool:
        """Return whether ``_SUCCESS`` lists the renamed files, so that the export counts.

        An error may be raised after ``_SUCCESS`` was written.
        """
        try:
            return bool(self._named) and self._storage.read(SUCCESS) == self._said()
        except FileNotFoundError:
            return False

    def _discard(self) -> None:
        """Delete the files if the export does not count. They stay if that cannot be determined."""
        with suppress(OSError, pa.ArrowException):
            for one in [] if self._counts() else self._named:
                with suppress(OSError, pa.ArrowException):
                    self._storage.delete(one.path)
        self._tidy()

    def _tidy(self) -> None:
        """Delete the hidden folder with the files of failed attempts."""
        with suppress(OSError, pa.ArrowException):
            self._storage.discard(self._folder)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise ExportError(f"{self._storage.uri} cannot be written: {error}") from error
