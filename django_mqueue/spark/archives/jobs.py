"""Work spread over Spark's executors: a function, called for each of several things, each in a task of its own.

Spark is the scheduler alone: what a task reads and writes does not pass through the JVM. What a task found returns as
JSON, and is checked: a Spark Connect server is another machine, whose bytes must not become code here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import pyarrow as pa

from ...exceptions import LogGap, MQueueError
from ..collecting import collect_all
from ..errors import ArchiveError, NoConnection, OptionError
from ..processes import keep_loaded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

_ERRORS: dict[str, type[MQueueError]] = {
    kind.__name__: kind for kind in (LogGap, OptionError, NoConnection, ArchiveError)
}
_SCHEMA = "number BIGINT, outcome STRING"


def spread(
    spark: SparkSession, work: Callable[[Item], Sequence[Result]], items: Sequence[Item], kind: type[Result]
) -> list[list[Result]]:
    """``work`` of each item, in their order. ``kind``: ``str``, or a dataclass of texts and whole numbers.

    An error of the queue's is final, and raised here. After another one Spark tries the task again as often as it does
    with any; then it is an ``ArchiveError``. So ``work`` must do no harm when it is done twice.
    """
    if not items:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcome = _outcome(work, items[number])
                yield pa.RecordBatch.from_pydict(
                    {"number": pa.array([number], pa.int64()), "outcome": pa.array([outcome], pa.string())}
                )
        keep_loaded()

    tasks = spark.range(0, len(items), 1, len(items)).mapInArrow(run, _SCHEMA)
    try:
        rows = collect_all(tasks)
    except Exception as error:
        raise ArchiveError(f"a task failed: {last_line(error)}") from error
    outcomes = [_found(row.outcome, kind) for row in sorted(rows, key=lambda row: row.number)]
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


def _outcome(work: Callable[[Any], Sequence[Any]], item: Any) -> str:
    try:
        found = work(item)
    except MQueueError as error:
        return json.dumps({"error": type(error).__name__, "text": str(error)})
    return json.dumps({"found": [each if isinstance(each, str) else asdict(each) for each in found]})


def _found(outcome: Any, kind: type[Result]) -> list[Result]:
    """Raise the error of the queue's that a task has met, or ``ArchiveError`` for what no task returns."""
    try:
        value = json.loads(outcome)
        error = error_of(value["error"], str(value["text"])) if "error" in value else None
        found = [_checked(each, kind) for each in value["found"]] if error is None else []
    except (ValueError, TypeError, LookupError):
        raise ArchiveError(
            f"a task returned {str(outcome)[:100]!r}: are driver and executors of the same version?"
        ) from None
    if error is not None:
        raise error
    return found


def _checked(value: Any, kind: type[Any]) -> Any:
    if kind is str and isinstance(value, str):
        return value
    fields = get_type_hints(kind) if is_dataclass(kind) else {}
    if not isinstance(value, dict) or {name: type(each) for name, each in value.items()} != fields:
        raise TypeError(f"not of {kind}")
    return kind(**value)


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
