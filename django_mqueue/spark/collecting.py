"""All rows of a frame in the driver, or an error.

PySpark's ``collect()`` takes the end of the connection to Java for the end of the rows (seen in 4.2 and 4.3): if Java
dies while it sends them, the list is short and no exception is raised. ``toArrow()`` is told how many batches there
are, and asks Java behind them whether all were sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def collect_all(frame: DataFrame) -> list[Row]:
    """Return what ``frame.collect()`` should: all rows. Raises an exception of Spark's if Java ends meanwhile."""
    from pyspark.sql.conversion import ArrowTableToRowsConversion

    rows: list[Row] = ArrowTableToRowsConversion.convert(frame.toArrow(), frame.schema)
    return rows
