"""Writing to topics: each task stores its rows through the gate, a few hundred in each transaction.

It is no transaction over all tasks: what a write that failed has stored stays, and is not stored again when it is run
again (see ``rows`` about ids), for as long as the log holds it. Within a task rows are stored in their order, so all
rows of a key that are in one task keep theirs; ``keep_order`` sees to it that they are.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, MapType, StringType, StructType

from .errors import OptionError, RowError
from .outbox import Outbox
from .rows import COLUMNS, DIGEST, Rows, Task
from .write_options import ADAPTIVE_STREAMS, WriteOptions

BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
"""Spark's local properties of a task, which are how a writer learns of them (4.2, 4.3)."""

ADAPTIVE = ("spark.sql.adaptive.enabled", ADAPTIVE_STREAMS)
"""Others: settings. For the batches of a stream with state Spark itself turns the first one off."""

_TEXT = StringType()
_TYPES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(COLUMNS, (_TEXT,)),
    "payload": (_TEXT, BinaryType()),
    "headers": (_TEXT, MapType(_TEXT, _TEXT)),
}


@dataclass
class Stored(WriterCommitMessage):
    """What a task has done: how many rows it had, and how many of these were not there before.

    ``digests``: of a write with a name, as ``Rows`` has them.
    """

    rows: int
    new: int
    digests: bytes = b""


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


def stored(batches: Iterator[pa.RecordBatch], task: Task, options: WriteOptions) -> Stored:
    """What both kinds of writer do in a task."""
    rows, outbox = Rows(task, options), Outbox(options)
    try:
        for batch in batches:
            columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
            for topic, row in rows.messages(columns, batch.num_rows):
                outbox.put(topic, row)
        outbox.flush()
    finally:
        outbox.close()
    return Stored(outbox.rows, outbox.new, rows.digests() if task.partition is None else b"")


def check_apart(digests: Iterable[bytes]) -> None:
    """Raise ``RowError`` if several tasks had equal rows, which have the same ids then: given the digests of each."""
    joined = b"".join(digests)
    array = pa.Array.from_buffers(pa.uint64(), len(joined) // DIGEST, [None, pa.py_buffer(joined)])
    if pc.count_distinct(array).as_py() < len(array):
        raise RowError(
            "this write has a 'writeId', and several tasks have equal rows without an id: these cannot be told from"
            " rows that come again, and not all are stored. Let equal rows be in one task"
            " (frame.repartition('payload'), or by other columns that tell them) and write again with the same writeId:"
            " what is missing is stored then, and nothing twice"
        )


class Writer(DataSourceArrowWriter):
    """A batch."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._unnamed = uuid.uuid4().hex
        """Made in the driver, once for each write."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        name = self._options.write_id
        partition = _context().partitionId() if name is None else None
        return stored(iterator, Task(f"write {name or self._unnamed}", partition), self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """In the driver, when all tasks have ended."""
        check_apart(message.digests for message in messages if isinstance(message, Stored))


class StreamWriter(DataSourceStreamArrowWriter):
    """A stream's batches; which one it is the task's properties tell."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise OptionError(
                f"this Spark tells its tasks neither {QUERY_ID} nor {BATCH_ID}, and rows without ids could be stored"
                " twice: write with foreachBatch, give an id column, and the option 'writeId'"
            )
        adaptive = all(context.getLocalProperty(name) != "false" for name in ADAPTIVE)
        task = Task(f"query {query} batch {batch}", context.partitionId(), adaptive)
        return stored(iterator, task, self._options)


def _context() -> TaskContext:
    found = TaskContext.get()
    assert found is not None
    return found
