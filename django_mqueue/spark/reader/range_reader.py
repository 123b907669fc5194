"""Read the ranges of a batch on executors, for batches and for streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from .options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa


class RangeReader:
    """Reads partitions whose value is a ``Range``."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.columns, self.options = schema, options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:  # Without partitions, Spark still runs one task.
            from ..processes import keep_loaded
            from .reading import read

            yield from read(partition.value, self.columns, self.options)
            keep_loaded()
