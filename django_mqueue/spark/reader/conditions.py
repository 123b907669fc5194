"""Conditions in Spark's SQL that users give to choose messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..configuring import session_settings
from ..errors import OptionError

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession

DATA_EXCEPTION = "22"
"""The SQLSTATE class of unsuitable values: for example, a text that is not a number, or a division by zero."""

IN_UTC = {"spark.sql.session.timeZone": "UTC"}
"""The time zone of conditions. It is fixed, because a run may continue on another machine."""

NOT_OF_CONDITION = ("38", "KD")
"""SQLSTATE classes of errors of a data source, not of the condition. Spark Connect reads a source early."""


class ConditionFailed(OptionError):
    """The condition fails with an error for one of the messages."""


def chosen(frame: DataFrame, condition: str) -> DataFrame:
    """Return the rows that meet the condition. Raises ``OptionError`` if it is not a condition over the columns."""
    from pyspark.errors import AnalysisException, PySparkException

    try:
        with session_settings(frame.sparkSession, IN_UTC):
            found = frame.where(condition)
            found.schema  # noqa: B018 (a Spark Connect server looks at the condition only now)
    except PySparkException as error:
        is_analysis, state = isinstance(error, AnalysisException), _state(error)
        if is_analysis and state.startswith(NOT_OF_CONDITION):
            raise
        if not is_analysis and not state.startswith(DATA_EXCEPTION):
            raise
        raise OptionError(
            f"where is {condition!r}, which is not a condition over the columns {', '.join(frame.columns)}:"
            f" {_first(error)}"
        ) from error
    return found


@contextmanager
def evaluated(spark: SparkSession, condition: str | None) -> Iterator[None]:
    """A block in which Spark evaluates the condition. Raises ``ConditionFailed`` if it fails for a message."""
    from pyspark.errors import PySparkException

    try:
        with session_settings(spark, {} if condition is None else IN_UTC):
            yield
    except PySparkException as error:
        if condition is None or not _state(error).startswith(DATA_EXCEPTION):
            raise
        raise ConditionFailed(
            f"where is {condition!r}, which fails for one of the messages: {_first(error)}"
        ) from error


def _first(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]


def _state(error: PySparkException) -> str:
    """Return the SQLSTATE of the error; an empty text if it has none."""
    try:
        return error.getSqlState() or ""
    except Exception:  # This calls Spark's Java, which may have ended.
        return ""
