"""What a task does: it reads a stretch of the log, or of its history, and writes it into files of the archive."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, TimestampType

from ...exceptions import LogGap
from ..batches import Batches
from ..columns import schema_of
from ..connecting import Connecting
from ..options import ReadOptions, Table
from ..ranges import Range
from ..reading import read
from .parquet import Days, FileEntry
from .storage import storage_at


@dataclass(frozen=True)
class Task:
    """``topic``: the archived one. Dead letters are read from a topic of their own."""

    topic: str
    table: Table
    range: Range


def writing(to: str, options: Mapping[Table, ReadOptions]) -> Callable[[Task], list[FileEntry]]:
    """A function for executors: writes what a task is to, reads it back, and returns the files that it has made.

    Files have names that none had before, and count when they are committed. Raises ``LogGap`` for messages that were
    there when the task was planned, and are gone.
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
    """The rows with the archived topic, also dead letters: the table says that of the file, and tools differ."""
    column = pa.array([topic] * batch.num_rows, pa.string())
    return batch.set_column(batch.schema.get_field_index("topic"), "topic", column)


def rows(task: Task, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """What a task is to archive, with ``published_at``. Raises ``LogGap`` at the end if some of it is gone.

    Not the one of ``read``, which tells readers that nothing is deleted before a group is done with it.
    """
    fetched, seen = schema(task.table), 0
    if "published_at" not in fetched.fieldNames():
        fetched = StructType([*fetched.fields, StructField("published_at", TimestampType())])
    for batch in read(task.range, Batches(fetched), replace(options, fail_on_data_loss=False)):
        yield batch
        seen += batch.num_rows
    if task.table == "messages" and options.fail_on_data_loss:
        _check_whole(task, seen)


def schema(table: Table) -> StructType:
    """All columns of a table, as Spark has them."""
    return schema_of(ReadOptions(Connecting(), table=table, include_headers=True))


def arrow_schema(table: Table) -> pa.Schema:
    """The columns of the files of a table."""
    return to_arrow_schema(schema(table), timezone="UTC")


def _check_whole(task: Task, seen: int) -> None:
    piece = task.range.piece
    if seen < piece.rows:
        raise LogGap(
            f"topic {piece.topic!r}: {piece.rows - seen} of the {piece.rows} messages with offsets {piece.above + 1} to"
            f" {piece.upto} were deleted while they were archived, though the group of the archive was not done with"
            " them. Run it again: what is missing then is told"
        )
