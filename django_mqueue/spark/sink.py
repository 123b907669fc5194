"""Writing to topics: each task stores its rows through the gate, a few hundred in each transaction.

It is no transaction over all tasks: what a write that failed has stored stays, and is not stored again when it is run
again (see ``rows`` about ids), for as long as the log holds it. Within a task rows are stored in their order, so all
rows of a key that are in one task keep theirs; ``keep_order`` sees to it that they are.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, MapType, StringType, StructType

from .errors import OptionError
from .outbox import Outbox
from .rows import COLUMNS, Rows, Task
from .write_options import WriteOptions

BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
"""Spark's local properties of a task, which are how a writer learns of them (4.2, 4.3)."""

_TEXT = StringType()
_TYPES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(COLUMNS, (_TEXT,)),
    "payload": (_TEXT, BinaryType()),
    "headers": (_TEXT, MapType(_TEXT, _TEXT)),
}


@dataclass
class Stored(WriterCommitMessage):
    """What a task has done: how many rows it had, and how many of these were not there before."""

    rows: int
    new: int


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raise ``OptionError`` for columns that cannot be a message's."""
    for field in schema.fields:
        if field.name not in _TYPES:
            raise OptionError(
                f"column {field.name!r} is none of a message; select some of {', '.join(COLUMNS)} (payload is needed:"
                " to_json(struct(…)) makes one of columns)"
            )
        if not any(type(field.dataType) is type(kind) for kind in _TYPES[field.name]):
            wanted = " or ".join(kind.simpleString() for kind in _TYPES[field.name])
            raise OptionError(
                f"column {field.name!r} is {field.dataType.simpleString()}, but must be {wanted}"
            )
    if "payload" not in schema.fieldNames():
        raise OptionError(
            "there is no column 'payload': JSON text, or bytes (to_json(struct(…)) makes the text)"
        )
    if options.topic is None and "topic" not in schema.fieldNames():
        raise OptionError("no topic: give the option 'topic', or a column of that name")


class _Writing:
    """What both kinds of writer do in a task."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.write_id = options.write_id or uuid.uuid4().hex
        """Made in the driver, once for each write."""

    def stored(self, batches: Iterator[pa.RecordBatch], write: str, partition: int) -> Stored:
        rows, outbox = Rows(Task(write, partition), self.options), Outbox(self.options)
        try:
            for batch in batches:
                columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
                for topic, row in rows.messages(columns, batch.num_rows):
                    outbox.put(topic, row)
            outbox.flush()
        finally:
            outbox.close()
        return Stored(outbox.rows, outbox.new)


class Writer(DataSourceArrowWriter):
    """A batch."""

    def __init__(self, options: WriteOptions) -> None:
        self._writing = _Writing(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        return self._writing.stored(iterator, f"write {self._writing.write_id}", _context().partitionId())


class StreamWriter(DataSourceStreamArrowWriter):
    """A stream's batches; which one it is the task's properties tell."""

    def __init__(self, options: WriteOptions) -> None:
        self._writing = _Writing(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise OptionError(
                f"this Spark tells its tasks neither {QUERY_ID} nor {BATCH_ID}, and rows without ids could be stored"
                " twice: write with foreachBatch, give an id column, and the option 'writeId'"
            )
        return self._writing.stored(iterator, f"query {query} batch {batch}", context.partitionId())


def _context() -> TaskContext:
    found = TaskContext.get()
    assert found is not None
    return found
