"""Write to topics. Each task stores its rows as a publisher does, a few hundred in each transaction.

A write is not one transaction over all tasks. The rows that a failed write has stored remain. A repeated write does not
store them a second time, as long as the log holds them (see ``rows`` about ids). A task stores its rows in their order.
So rows of one key keep their order if they are in one task; ``keep_order`` puts them into one task.
"""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, MapType, StringType, StructType

from ..errors import OptionError, RowError
from .row_buffer import RowBuffer
from .rows import COLUMNS, DIGEST, Rows, Task
from .write_options import ADAPTIVE_STREAMS, WriteOptions

BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
"""Local properties that Spark sets for a task. A writer reads its query and batch from them (4.2, 4.3)."""

ADAPTIVE = ("spark.sql.adaptive.enabled", ADAPTIVE_STREAMS)
"""Settings that a task also sees as local properties. Spark turns the first one off for a stream with state."""

_TEXT = StringType()
_TYPES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(COLUMNS, (_TEXT,)),
    "payload": (_TEXT, BinaryType()),
    "headers": (_TEXT, MapType(_TEXT, _TEXT)),
}


@dataclass
class Stored(WriterCommitMessage):
    """The result of a task. ``digests``: see ``Rows``. ``volatile``: see ``VolatileContent``."""

    digests: bytes = b""
    volatile: frozenset[tuple[str, str]] | None = None


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raise ``OptionError`` if a column cannot belong to a message, or if a needed column is missing."""
    for field in schema.fields:
        if field.name not in _TYPES:
            raise OptionError(
                f"column {field.name!r} is not a column of a message; select some of {', '.join(COLUMNS)} (payload is"
                " required: to_json(struct(…)) makes one of columns)"
            )
        if not any(type(field.dataType) is type(kind) for kind in _TYPES[field.name]):
            expected = " or ".join(kind.simpleString() for kind in _TYPES[field.name])
            raise OptionError(
                f"column {field.name!r} is {field.dataType.simpleString()}, but must be {expected}"
            )
    if "payload" not in schema.fieldNames():
        raise OptionError(
            "there is no column 'payload': JSON text, or bytes (to_json(struct(…)) makes the text)"
        )
    if options.topic is None and "topic" not in schema.fieldNames():
        raise OptionError("no topic: give the option 'topic', or a column of that name")


def store_rows(batches: Iterator[pa.RecordBatch], task: Task, options: WriteOptions) -> Stored:
    rows = Rows(task, options)
    with closing(RowBuffer(options)) as buffer:
        for batch in batches:
            columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
            for topic, row in rows.messages(columns, batch.num_rows):
                buffer.put(topic, row)
        buffer.flush()
    digests = rows.digests() if task.partition is None else b""
    return Stored(digests, rows.volatile.found)


def check_distinct(digests: Iterable[bytes]) -> None:
    """Raise ``RowError`` if several tasks had equal rows, which have the same id. ``digests``: of each task."""
    joined = b"".join(digests)
    array = pa.Array.from_buffers(pa.uint64(), len(joined) // DIGEST, [None, pa.py_buffer(joined)])
    if pc.count_distinct(array).as_py() < len(array):
        raise RowError(
            "this write has a 'writeId', and several tasks have equal rows without an id. The sink cannot"
            " distinguish these from repeated rows, so some are not stored. Put equal rows into one task"
            " (frame.repartition('payload'), or by other columns that distinguish them) and write again with the"
            " same writeId: the missing rows are stored then, and none twice"
        )


def warn_of_volatile_content(name: str | None, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Warn if all rows without an id have content that is probably different when the write runs again."""
    tasks = [each.volatile for each in messages if isinstance(each, Stored) and each.volatile is not None]
    found = sorted(tasks[0].intersection(*tasks)) if tasks else []
    if found:
        listed = " and ".join(f"{description} in column {column!r}" for column, description in found)
        warnings.warn(
            f"write {name!r}: its rows without an id have {listed}. The ids of such rows are made of their content."
            " If uuid(), current_timestamp() or a similar function made it, a repeated write stores the rows a"
            " second time. Give rows ids of their own (a column 'id'), or set 'stableContent' to true if the content"
            " is always the same",
            stacklevel=2,
        )


class Writer(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._unnamed = uuid.uuid4().hex  # Made in the driver, so it is the same in all tasks.
        self._began = time.time()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        name = self._options.write_id
        partition = _context().partitionId() if name is None else None
        task = Task(f"write {name or self._unnamed}", partition, began=self._began)
        return store_rows(iterator, task, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Check the rows of all tasks. Spark calls this in the driver when all tasks have ended."""
        warn_of_volatile_content(self._options.write_id, messages)
        check_distinct(message.digests for message in messages if isinstance(message, Stored))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Warn about unstable content. Spark calls this in the driver when a task has failed."""
        warn_of_volatile_content(self._options.write_id, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream. The properties of a task identify the batch."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise OptionError(
                f"this version of Spark does not give its tasks {QUERY_ID} and {BATCH_ID}, so rows without ids could"
                " be stored twice: write with foreachBatch, with an id column or the option 'writeId'"
            )
        adaptive = all(context.getLocalProperty(name) != "false" for name in ADAPTIVE)
        task = Task(f"query {query} batch {batch}", context.partitionId(), adaptive)
        return store_rows(iterator, task, self._options)


def _context() -> TaskContext:
    found = TaskContext.get()
    assert found is not None
    return found
