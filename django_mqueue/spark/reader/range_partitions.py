"""Ranges as Spark's partitions, and the rows of a partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from .options import ReadOptions
from .ranges import Range

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """The range for one task. None: the task reads nothing."""

    def __init__(self, value: Range | None) -> None:
        super().__init__(value)


def partitions_of(found: Sequence[Range]) -> list[InputPartition]:
    return [RangePartition(each) for each in found]


def rows_of(partition: InputPartition, schema: StructType, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    if partition.value is not None:  # Without partitions, Spark still runs one task.
        from ..processes import keep_loaded
        from .batches import Batches
        from .reading import read

        yield from read(partition.value, Batches(schema), options)
        keep_loaded()
