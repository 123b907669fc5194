"""Work spread over Spark's executors: a function, called for each of several things, each in a task of its own.

Spark is the scheduler alone: what a task reads and writes does not pass through the JVM.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from ...exceptions import LogGap, MQueueError
from ..errors import ArchiveError, NoConnection, OptionError
from ..processes import keep_loaded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

_ERRORS: dict[str, type[MQueueError]] = {
    kind.__name__: kind for kind in (LogGap, OptionError, NoConnection, ArchiveError)
}
_SCHEMA = "number BIGINT, outcome BINARY"


def spread(spark: SparkSession, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``work`` of each item, in their order.

    An error of the queue's is final, and raised here. After another one Spark tries the task again as often as it does
    with any; then it is an ``ArchiveError``. So ``work`` must do no harm when it is done twice.
    """
    if not items:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcome = pickle.dumps(_outcome(work, items[number]))
                yield pa.RecordBatch.from_pydict(
                    {"number": pa.array([number], pa.int64()), "outcome": pa.array([outcome], pa.binary())}
                )
        keep_loaded()

    tasks = spark.range(0, len(items), 1, len(items)).mapInArrow(run, _SCHEMA)
    try:
        rows = tasks.collect()
    except Exception as error:
        raise ArchiveError(f"a task failed: {last_line(error)}") from error
    outcomes = [pickle.loads(row.outcome) for row in sorted(rows, key=lambda row: row.number)]
    for outcome in outcomes:
        if isinstance(outcome, _Failed):
            raise error_of(outcome.kind, outcome.text)
    if len(outcomes) != len(items):
        raise ArchiveError(f"Spark has run {len(outcomes)} of {len(items)} tasks")
    return outcomes


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once, as far as Spark tells."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context.
        return int(spark.conf.get("spark.default.parallelism", "8") or 8)


def error_of(kind: str, text: str) -> MQueueError:
    """An error of the queue's that a task has met."""
    return _ERRORS.get(kind, ArchiveError)(text)


class _Failed:
    def __init__(self, error: MQueueError) -> None:
        self.kind, self.text = type(error).__name__, str(error)


def _outcome(work: Callable[[Any], Any], item: Any) -> Any:
    try:
        return work(item)
    except MQueueError as error:
        return _Failed(error)


def last_line(error: Exception) -> str:
    """What was raised in Python, of all that Spark tells."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent")]
    if python:
        for line in lines[python[-1] :]:
            head, separator, _ = line.partition(": ")
            if separator and head.replace(".", "").isidentifier() and not head.startswith("File"):
                return line
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):  # So Py4J begins.
        return lines[1].removeprefix(": ")
    return lines[0] if lines else type(error).__name__
