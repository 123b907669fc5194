"""Data sources that record how Spark calls them. The product relies on this behaviour (see ``test_traps``)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    GreaterThanOrEqual,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from django_mqueue.spark.reader.columns import schema_of
from django_mqueue.spark.reader.options import ReadOptions, read_options
from django_mqueue.spark.reader.source import MQueueDataSource
from django_mqueue.spark.streams.stream_reader import StreamReader
from django_mqueue.spark.writer.sink import Writer


def note(path: str, line: str) -> None:
    """Append a line to the file, from any of Spark's processes."""
    with open(path, "a") as file:
        file.write(line + "\n")


class Filters(DataSource):
    """A thousand numbers. The source leaves out rows by the filters that Spark pushes down."""

    @classmethod
    def name(cls) -> str:
        return "probe_filters"

    def schema(self) -> str:
        return "x INT"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Filters()


class _Filters(DataSourceReader):
    def __init__(self) -> None:
        self.least = 0

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        for found in filters:
            if isinstance(found, GreaterThanOrEqual):
                self.least = found.value
            else:
                yield found

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield from ((x,) for x in range(self.least, 1000))


class Nothing(DataSource):
    """A source without partitions. Its rows show the partition that Spark asks it to read."""

    @classmethod
    def name(cls) -> str:
        return "probe_nothing"

    def schema(self) -> str:
        return "asked STRING"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Nothing()


class _Nothing(DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        yield (repr(partition.value),)


class Moments(DataSource):
    """One timestamp in an Arrow batch, whose time zone is the option ``zone``."""

    @classmethod
    def name(cls) -> str:
        return "probe_moments"

    def schema(self) -> str:
        return "at TIMESTAMP"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Moments(self.options["zone"])


class _Moments(DataSourceReader):
    def __init__(self, zone: str) -> None:
        self.zone = zone

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"at": pa.array([1_000_000], pa.timestamp("us", tz=self.zone))})


class Steps(DataSource):
    """A stream of three batches with one row each.

    It writes each call into the file of the option ``notes``, with the batches that were durable in ``checkpoint`` at
    that time.
    """

    @classmethod
    def name(cls) -> str:
        return "probe_steps"

    def schema(self) -> str:
        return "step INT"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Steps(self.options["notes"], self.options["checkpoint"])


class _Steps(DataSourceStreamReader):
    def __init__(self, notes: str, checkpoint: str) -> None:
        self.notes, self.checkpoint = notes, checkpoint

    def initialOffset(self) -> dict[str, int]:
        return {"step": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        note(self.notes, f"latest from {start['step']}, {self._durable()}")
        return {"step": min(start["step"] + 1, 3)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(end["step"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)

    def commit(self, end: dict[str, int]) -> None:
        note(self.notes, f"commit of {end['step']}, {self._durable()}")

    def _durable(self) -> str:
        """Return the last batch that Spark has planned, and the last batch that it has committed."""
        planned, done = (
            sorted(int(name) for name in os.listdir(place) if name.isdecimal()) if place.exists() else []
            for place in (Path(self.checkpoint, "offsets"), Path(self.checkpoint, "commits"))
        )
        return f"planned {planned[-1] if planned else -1}, done {done[-1] if done else -1}"


class Counted(MQueueDataSource):
    """The queue's own stream. It writes each call for the latest offset into the file of the option ``notes``."""

    @classmethod
    def name(cls) -> str:
        return "probe_counted"

    def schema(self) -> StructType:
        return schema_of(self._noted()[1])

    def streamReader(self, schema: StructType) -> StreamReader:
        notes, options = self._noted()
        return _Counted(schema, options, notes)

    def _noted(self) -> tuple[str, ReadOptions]:
        options = dict(self.options)
        notes = options.pop("notes")
        return notes, read_options(options, streaming=True)


class _Counted(StreamReader):
    def __init__(self, schema: StructType, options: ReadOptions, notes: str) -> None:
        super().__init__(schema, options)
        self.notes = notes

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        note(self.notes, "asked")
        return super().latestOffset(start, limit)


ALL: tuple[type[DataSource], ...] = (Filters, Nothing, Moments, Steps, Counted)


class Strict(MQueueDataSource):
    """A writer that raises instead of warning."""

    @classmethod
    def name(cls) -> str:
        return "mqueue_strict"

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        return _Strict(self._writing(schema, overwrite, streaming=False))


class _Strict(Writer):
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        warnings.simplefilter("error")
        super().commit(messages)
