"""Rows brought into an order in which a write keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def keep_order(frame: DataFrame, *by: str | Column) -> DataFrame:
    """The same rows, those of one topic and key in one task, and there in the order of ``by``: they are stored so.

    Rows without a key have no order.
    """
    from pyspark.sql import functions

    keys = [functions.col(name) for name in ("topic", "key") if name in frame.columns]
    return frame.repartition(*keys).sortWithinPartitions(*by)
