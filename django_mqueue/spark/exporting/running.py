"""The export run: planned as a batch, a file by each task, and at the end a file that says that all are there."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ..archiving.asking import Progress
from ..archiving.files import HIDDEN, Files, Found
from ..archiving.hadoop import HadoopFiles
from ..archiving.jobs import parallelism, spread
from ..archiving.vacancy import held
from ..connecting import Line
from ..errors import ArchiveError, ExportError
from ..planning import batch, some_topics
from .asking import Asked
from .by_spark import by_spark
from .writing import Task, Written, writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUCCESS = "_SUCCESS"
"""As Hadoop's committers call it; some of them put a JSON into it, too, that names the files."""

ROUND = 8
"""Tasks for each that runs at once, between two looks at how far it is."""


@dataclass(frozen=True)
class Exported:
    """How much there is in the folder now."""

    rows: int
    files: int
    bytes: int


class Run:
    """One run; ``run`` it once."""

    def __init__(self, spark: SparkSession, files: Files, wanted: Asked, progress: Progress) -> None:
        self._spark, self._files, self._wanted, self._progress = spark, files, wanted, progress
        self._name = uuid.uuid4().hex[:12]

    def run(self) -> Exported:
        self._check_free()
        line = Line(self._wanted.options.connecting)
        try:
            tasks = line.run(self._tasks)
        finally:
            line.close()
        self._check_writable()
        if isinstance(self._files, HadoopFiles):
            rows = by_spark(self._spark, self._files, self._wanted)
            there = [each for each in self._files.list("") if each.path.endswith(".parquet")]
            return Exported(rows, len(there), sum(each.bytes for each in there))
        try:
            found = self._written(tasks)
            with self._told():
                self._tidy(found)
                self._files.write(SUCCESS, _told_of(found))
        except BaseException:
            self._discard()
            raise
        return Exported(sum(one.rows for one in found), len(found), sum(one.bytes for one in found))

    def _tasks(self, using: str) -> list[Task]:
        some_topics(using, self._wanted.options)
        ranges = batch(using, self._wanted.options)
        return [Task(number, each) for number, each in enumerate(ranges or [None])]

    def _check_free(self) -> None:
        with self._told():
            there = held(self._files)
        if there:
            raise ExportError(
                f"{self._files.uri} is not empty (it holds {', '.join(there[:3])}): give a folder that is empty, or not"
                f" there yet. An export without {SUCCESS} was not finished, and can be deleted"
            )

    def _check_writable(self) -> None:
        """Before anything is read."""
        probe = f"{HIDDEN}probe-{self._name}"
        with self._told():
            self._files.write(probe, b"")
            self._files.delete(probe)

    def _written(self, tasks: Sequence[Task]) -> list[Written]:
        work = writing(self._files.uri, self._name, self._wanted)
        found: list[Written] = []
        at_once = ROUND * parallelism(self._spark)
        self._progress(0, len(tasks))
        while len(found) < len(tasks):
            try:
                found += spread(self._spark, work, tasks[len(found) : len(found) + at_once])
            except ArchiveError as error:
                raise ExportError(f"{self._files.uri}: {error}") from error
            self._progress(len(found), len(tasks))
        return found

    def _tidy(self, found: Sequence[Written]) -> None:
        """Delete what attempts have left that do not count. Raises ``ExportError`` if a file is not as written."""
        there = {each.path: each.bytes for each in self._mine()}
        for one in found:
            if there.pop(one.path, None) != one.bytes:
                raise ExportError(
                    f"{self._files.uri}: what an executor has written there ({one.path}, {one.bytes:,} bytes) is not"
                    " seen by the driver: give a place that all machines share"
                )
        for path in there:
            self._files.delete(path)

    def _mine(self) -> Iterator[Found]:
        return (each for each in self._files.list("") if self._name in each.path)

    def _discard(self) -> None:
        with suppress(OSError, pa.ArrowException):
            for each in list(self._mine()):
                with suppress(OSError, pa.ArrowException):
                    self._files.delete(each.path)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise ExportError(f"{self._files.uri} cannot be written: {error}") from error


def _told_of(found: Sequence[Written]) -> bytes:
    told = {"rows": sum(one.rows for one in found), "files": [asdict(one) for one in found]}
    return json.dumps(told, indent=2).encode() + b"\n"
