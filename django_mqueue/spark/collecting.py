"""Collect all rows of a frame in the driver, or raise an error.

PySpark's ``collect()`` treats the end of the connection to Java as the end of the rows (seen in 4.2 and 4.3). If Java
dies while it sends rows, the list is short and no exception is raised. ``toArrow()`` receives the number of batches,
and then asks Java whether all were sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def collect_all(frame: DataFrame) -> list[Row]:
    """Return all rows, as ``frame.collect()`` should. Raises an exception of Spark if Java ends meanwhile."""
    from pyspark.sql.conversion import ArrowTableToRowsConversion

    rows: list[Row] = ArrowTableToRowsConversion.convert(frame.toArrow(), frame.schema)
    return rows
