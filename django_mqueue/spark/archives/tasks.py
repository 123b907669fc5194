"""The work of a task: read a range of the log or of its delivery history, and write it into files of the archive."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, TimestampType

from ...exceptions import LogGap
from ..connecting import ConnectionParameters
from ..reader.columns import schema_of
from ..reader.options import ReadOptions, Table
from ..reader.ranges import Range
from ..reader.reading import read
from .parquet import Days, FileEntry
from .storage import storage_at


@dataclass(frozen=True)
class Task:
    """A range to archive. ``topic``: the archived topic. Dead letters are in another topic, which ``range`` names."""

    topic: str
    table: Table
    range: Range


def writing(to: str, options: Mapping[Table, ReadOptions]) -> Callable[[Task], list[FileEntry]]:
    """Return a function for executors, which writes the files of a task, reads them back, and returns them.

    The names of the files are new. The files count when a commit names them. The function raises ``LogGap`` if messages
    were deleted after the task was planned.
    """

    def written(task: Task) -> list[FileEntry]:
        table = task.table
        days = Days(storage_at(to), table, task.topic, uuid.uuid4().hex, arrow_schema(table))
        with days:
            for batch in rows(task, options[table]):
                days.add(_of_topic(batch, task.topic))
        return days.entries

    return written


def _of_topic(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """Return the rows with the archived topic in the column ``topic``, also for dead letters.

    The table names this topic for the file. If column and table differ, tools disagree about which value they use.
    """
    column = pa.array([topic] * batch.num_rows, pa.string())
    return batch.set_column(batch.schema.get_field_index("topic"), "topic", column)


def rows(task: Task, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, with the column ``published_at``. Raises ``LogGap`` at the end if rows are missing.

    The ``LogGap`` of ``read`` does not fit here: it advises readers to use a group, because deletion waits for groups.
    """
    fetched, seen = schema(task.table), 0
    if "published_at" not in fetched.fieldNames():
        fetched = StructType([*fetched.fields, StructField("published_at", TimestampType())])
    for batch in read(task.range, fetched, replace(options, fail_on_data_loss=False)):
        yield batch
        seen += batch.num_rows
    if task.table == "messages" and options.fail_on_data_loss:
        _check_whole(task, seen)


def schema(table: Table) -> StructType:
    """Return all columns of a table, as Spark types."""
    return schema_of(ReadOptions(ConnectionParameters(), table=table, include_headers=True))


def arrow_schema(table: Table) -> pa.Schema:
    """Return the columns of the files of a table, as Arrow types."""
    return to_arrow_schema(schema(table), timezone="UTC")


def _check_whole(task: Task, seen: int) -> None:
    piece = task.range.piece
    if seen < piece.rows:
        raise LogGap(
            f"topic {piece.topic!r}: {piece.rows - seen} of the {piece.rows} messages with offsets {piece.above + 1}"
            f" to {piece.upto} were deleted during the run, although the archive's group was not done with them. Run"
            " it again: the next run reports what is missing"
        )
