"""Order rows so that a write keeps their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY = "key"


def keep_order(frame: DataFrame, *by: str | Column) -> DataFrame:
    """Return the same rows, with all rows of a key in one task, and in this task in the order of ``by``.

    A write stores them in this order. Rows without a key have no order. Raises ``OptionError`` if there is no column
    ``key``, and for a stream, which Spark does not sort. For a stream, sort each batch in ``foreachBatch``.
    """
    if frame.isStreaming:
        raise OptionError(
            "keep_order: Spark does not sort a stream. Write by foreachBatch, where each batch is a table:"
            " keep_order(batch, …), and the option 'writeId' made of the query's id and the batch's number"
            " (docs/how-to/publish-with-spark.md)"
        )
    if KEY not in frame.columns:
        raise OptionError(
            f"keep_order: there is no column {KEY!r}, and messages without a key have no order. The columns are"
            f" {', '.join(frame.columns)}"
        )
    # Not by topic: a null topic is the option's topic, which the column may also name.
    return frame.repartition(KEY).sortWithinPartitions(*by)
