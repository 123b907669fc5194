"""Rows brought into an order in which a write keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY = "key"


def keep_order(frame: DataFrame, *by: str | Column) -> DataFrame:
    """The same rows, those of one key in one task, and there in the order of ``by``: they are stored so.

    Rows without a key have no order. Raises ``OptionError`` for a stream, which Spark does not sort: each of its
    batches can be, in ``foreachBatch``.
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
    # Not by topic as well: one that is null is the option's, and may stand in the column of other rows.
    return frame.repartition(KEY).sortWithinPartitions(*by)
