"""Files of an archive where executors have no way to but Spark's own: Spark writes them, the driver does the rest.

Spark writes into a folder of its own below ``.writing``, which nothing names. When it is done, the driver gives the
files their names, and reads each back. A task's rows, and what it tells of them, come from one attempt of it.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import StringType, StructField, StructType

from ...exceptions import MQueueError
from ..configuring import configured
from ..errors import ArchiveError
from ..options import ReadOptions, Table
from .catalog import read_parquet, schema
from .files import HIDDEN
from .hadoop import HadoopFiles
from .jobs import error_of, last_line
from .layout import TABLES, data_path
from .manifest import FileEntry
from .parquet import BYTES_PER_FILE, offsets_of, problem
from .writing import Task, arrow_schema, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITING = f"{HIDDEN}writing"
READERS = 8
"""Files that the driver reads or renames at once."""

PLACE = "mqueue_place"
"""A column that says which file a row belongs to; no file holds it."""

TOLD = "told"
"""The place of what a task says of its rows, in place of a day."""

AS_ARROW_WRITES = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
_DAY = 86_400_000_000


def written(
    spark: SparkSession, files: HadoopFiles, options: Mapping[Table, ReadOptions], tasks: Sequence[Task]
) -> list[list[FileEntry]]:
    """For each task the files that were made of what it reads. Raises what a task has met, or ``ArchiveError``."""
    found: list[list[FileEntry]] = [[] for _ in tasks]
    with _Folder(files) as folder:
        for table in TABLES:
            numbers = [number for number, task in enumerate(tasks) if task.table == table]
            if not numbers:
                continue
            mine = [tasks[number] for number in numbers]
            kind = StructType([*schema(table).fields, StructField(PLACE, StringType())])
            frame = spark.range(0, len(mine), 1, len(mine)).mapInArrow(_reading(mine, options[table]), kind)
            there = folder.write(spark, frame, table)
            told = _told(files, there, len(mine))
            goals = [
                _Goal(table, task.topic, task.batch, told[number], str(number))
                for number, task in enumerate(mine)
            ]
            for number, entries in zip(numbers, folder.named(there, goals), strict=True):
                found[number] = entries
    return found


def merged(
    spark: SparkSession, files: HadoopFiles, topic: str, batch: int, days: Sequence[Day]
) -> list[list[FileEntry]]:
    """For each day of a table the files that its files were merged into. Raises ``ArchiveError`` if one is damaged."""
    read = problems(files, [entry for _, _, entries in days for entry in entries])
    if found := list(filter(None, read)):
        raise ArchiveError(f"{files.uri}: {found[0]}")
    made: dict[tuple[Table, str], list[FileEntry]] = {}
    with _Folder(files) as folder:
        for table in TABLES:
            mine = {date: entries for each, date, entries in days if each == table}
            if not mine:
                continue
            entries = [entry for some in mine.values() for entry in some]
            frame = read_parquet(spark, table, [files.spark_path(entry.path) for entry in entries])
            date = r"regexp_extract(_metadata.file_path, '/([0-9]{4}-[0-9]{2}-[0-9]{2})/[^/]*$', 1)"
            frame = frame.selectExpr("*", f"concat('0-', {date}) AS {PLACE}").repartition(len(mine), PLACE)
            rows, size = sum(entry.rows for entry in entries), sum(entry.bytes for entry in entries)
            there = folder.write(spark, frame, table, rows_per_file=max(1, rows * BYTES_PER_FILE // size))
            told = {date: sum(entry.rows for entry in some) for date, some in mine.items()}
            for entry in folder.named(there, [_Goal(table, topic, batch, told, "0")])[0]:
                made.setdefault((table, entry.date), []).append(entry)
    return [made[table, date] for table, date, _ in days]


Day = tuple[Table, str, Sequence[FileEntry]]


def problems(files: HadoopFiles, entries: Sequence[FileEntry]) -> Iterator[str | None]:
    """What is wrong with each of these files, or None, as they are read.

    The driver reads them, several at once, as streams: whatever their size, none is in memory as a whole, as it would
    be where Spark reads a file as one value.
    """
    with ThreadPoolExecutor(READERS) as pool:
        yield from pool.map(lambda entry: problem(files, entry), entries)


def probe(spark: SparkSession, files: HadoopFiles) -> None:
    """Raise ``ArchiveError`` unless executors can write there, and the driver sees it."""
    with _Folder(files) as folder:
        folder.write(spark, spark.range(1).selectExpr("id AS `offset`", f"'0-probe' AS {PLACE}"), "messages")
        if not files.list(folder.path, deep=True):
            raise FileNotFoundError(files.uri)


class _Goal:
    """Where a task's files are to be: ``rows`` by day, ``number`` in the places that they are at."""

    def __init__(self, table: Table, topic: str, batch: int, rows: Mapping[str, int], number: str) -> None:
        self.table, self.rows, self.number = table, rows, number
        self._name = (table, topic)
        self._batch, self._unique, self._count = batch, uuid.uuid4().hex[:16], count()

    def path(self, date: str) -> str:
        return data_path(*self._name, date, self._batch, self._unique, next(self._count))


class _Folder:
    """Where Spark writes. A context: it is deleted at its end; after an error also what has a name already."""

    def __init__(self, files: HadoopFiles) -> None:
        self._files = files
        self.path = f"{WRITING}/{uuid.uuid4().hex}"
        self._named: list[str] = []

    def __enter__(self) -> _Folder:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for path in self._named if kind is not None else ():
            with suppress(OSError):
                self._files.delete(path)
        with suppress(OSError):
            self._files.discard(self.path)

    def write(
        self, spark: SparkSession, frame: DataFrame, table: Table, rows_per_file: int = 0
    ) -> dict[str, list[str]]:
        """The paths of the files with the rows of each place, in their order."""
        goal = f"{self.path}/{table}"
        order = [PLACE, "offset"] + (["group"] if table == "deliveries" else [])
        writer = frame.sortWithinPartitions(*order).write.partitionBy(PLACE).option("compression", "zstd")
        try:
            with configured(spark, AS_ARROW_WRITES):
                writer.option("maxRecordsPerFile", rows_per_file).parquet(self._files.spark_path(goal))
        except Exception as error:
            raise ArchiveError(f"a task failed: {last_line(error)}") from error
        found: dict[str, list[str]] = defaultdict(list)
        for each in self._files.list(goal, deep=True):
            parts = each.path.removeprefix(f"{goal}/").split("/")
            if len(parts) == 2 and parts[0].startswith(f"{PLACE}=") and parts[1][0] not in "._":
                found[parts[0].removeprefix(f"{PLACE}=")].append(each.path)
        return found

    def named(self, there: Mapping[str, Sequence[str]], goals: Sequence[_Goal]) -> list[list[FileEntry]]:
        """Each goal's files, read back where they are now."""
        wanted = {f"{goal.number}-{date}": (goal, date) for goal in goals for date in goal.rows}
        places = {place for place in there if not place.endswith(f"-{TOLD}")}
        if odd := sorted(places ^ wanted.keys()):
            raise ArchiveError(
                f"{self._files.uri}: what Spark has read and what it has written differ: {odd}"
            )
        moves = [
            (goal, date, path, goal.path(date))
            for place, (goal, date) in sorted(wanted.items())
            for path in there[place]
        ]
        self._named += [path for *_, path in moves]
        try:
            with ThreadPoolExecutor(READERS) as pool:
                entries = list(pool.map(lambda move: self._placed(*move[1:]), moves))
        except (OSError, pa.ArrowException) as error:
            raise ArchiveError(f"read back from {self._files.uri}: {error}") from error
        found: dict[str, list[FileEntry]] = {goal.number: [] for goal in goals}
        for (goal, *_), entry in zip(moves, entries, strict=True):
            found[goal.number].append(entry)
        for goal in goals:
            counted: Counter[str] = Counter()
            for entry in found[goal.number]:
                counted[entry.date] += entry.rows
            if counted != goal.rows:
                raise ArchiveError(
                    f"read back from {self._files.uri}: {dict(counted)} rows, but {dict(goal.rows)} were written"
                )
        return [found[goal.number] for goal in goals]

    def _placed(self, date: str, path: str, goal: str) -> FileEntry:
        """Under its name, and read back."""
        self._files.move(path, goal)
        size, digest = self._files.digest(goal)
        offsets = offsets_of(self._files, goal)
        if not offsets.are_sorted:
            raise ArchiveError(f"read back from {self._files.uri}: {goal} is not sorted by offset")
        return FileEntry(goal, offsets.rows, offsets.first, offsets.last, date, size, digest)


def _reading(
    tasks: Sequence[Task], options: ReadOptions
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for executors: the rows of tasks, given by their numbers, and at the end what there is to tell."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _placed_rows(tasks[number], options, number)

    return read


def _placed_rows(task: Task, options: ReadOptions, number: int) -> Iterator[pa.RecordBatch]:
    kind = arrow_schema(task.table)
    names = [*kind.names, PLACE]
    days: Counter[str] = Counter()
    told: dict[str, Any]
    try:
        for batch in rows(task, options):
            days_since = pc.divide(batch.column("published_at").cast(pa.int64()), _DAY)
            dates = days_since.cast(pa.int32()).cast(pa.date32()).cast(pa.string())
            days.update({each["values"]: each["counts"] for each in pc.value_counts(dates).to_pylist()})
            places = pc.binary_join_element_wise(str(number), dates, "-")
            yield pa.RecordBatch.from_arrays([*(batch.column(name) for name in kind.names), places], names)
        told = {"number": number, "rows": days}
    except MQueueError as error:
        told = {"number": number, "failed": [type(error).__name__, str(error)]}
    line = {name: pa.nulls(1, kind.field(name).type) for name in kind.names}
    line |= {"topic": pa.array([json.dumps(told)]), PLACE: pa.array([f"{number}-{TOLD}"])}
    yield pa.RecordBatch.from_arrays([line[name] for name in names], names)


def _told(files: HadoopFiles, there: Mapping[str, Sequence[str]], tasks: int) -> list[dict[str, int]]:
    """How many rows of which day each task has read. Raises what one has met."""

    def lines(path: str) -> list[str]:
        with files.open(path) as stream:
            found: list[str] = pq.ParquetFile(stream).read(columns=["topic"]).column("topic").to_pylist()
        return found

    paths = [path for place, some in there.items() if place.endswith(f"-{TOLD}") for path in some]
    try:
        with ThreadPoolExecutor(READERS) as pool:
            told = [json.loads(line) for some in pool.map(lines, paths) for line in some]
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(f"read back from {files.uri}: {error}") from error
    for one in told:
        if "failed" in one:
            raise error_of(*one["failed"])
    found = {one["number"]: one["rows"] for one in told}
    if len(found) != tasks or len(told) != tasks:
        raise ArchiveError(f"Spark has run {len(told)} of {tasks} tasks")
    return [found[number] for number in range(tasks)]
