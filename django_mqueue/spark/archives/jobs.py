"""Work on Spark's executors: call a function for each of several items, each in a separate task.

Spark only schedules the tasks. The data that a task reads and writes does not pass through the JVM. A task returns its
result as JSON, and the driver checks it. The driver never unpickles bytes of a Spark Connect server, which could run
code here.
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
from ..explaining import explained
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
    """Call ``work`` for each item on the executors. Return the results in the order of the items.

    ``kind``: the type of a result: ``str``, or a dataclass of texts and whole numbers. ``work`` may run twice for an
    item, because Spark retries tasks. Raises an error of ``_ERRORS`` as ``work`` raised it, else ``ArchiveError``.
    """
    if not items:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    outcome = json.dumps({"found": [*work(items[number])]}, default=asdict)
                except MQueueError as error:
                    outcome = json.dumps({"error": type(error).__name__, "text": str(error)})
                yield pa.RecordBatch.from_pydict(
                    {"number": pa.array([number], pa.int64()), "outcome": pa.array([outcome], pa.string())}
                )
        keep_loaded()

    tasks = spark.range(0, len(items), 1, len(items)).mapInArrow(run, _SCHEMA)
    try:
        rows = collect_all(tasks)
    except Exception as error:
        raise ArchiveError(f"a task failed: {explained(error) or error}") from error
    outcomes = [_found(row.outcome, kind) for row in sorted(rows, key=lambda row: row.number)]
    if len(outcomes) != len(items):
        raise ArchiveError(f"Spark ran only {len(outcomes)} of {len(items)} tasks: run this again")
    return outcomes


def parallelism(spark: SparkSession, setting: str = "spark.default.parallelism") -> int:
    """Return the number of tasks that run at once. Spark Connect has no context: return the setting, or 8."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:
        return int(spark.conf.get(setting, "8") or 8)


def _found(outcome: Any, kind: type[Result]) -> list[Result]:
    """Return the results of a task, or raise its error. Raise ``ArchiveError`` if the outcome is malformed."""
    try:
        value = json.loads(outcome)
        if "error" not in value:
            return [_checked(each, kind) for each in value["found"]]
        error = _ERRORS.get(value["error"], ArchiveError)(str(value["text"]))
    except (ValueError, TypeError, LookupError):
        raise ArchiveError(
            f"a task returned {str(outcome)[:100]!r}: install the same version of django_mqueue on the driver and the"
            " executors"
        ) from None
    raise error


def _checked(value: Any, kind: type[Any]) -> Any:
    if kind is str and isinstance(value, str):
        return value
    fields = get_type_hints(kind) if is_dataclass(kind) else {}
    if not isinstance(value, dict) or {name: type(each) for name, each in value.items()} != fields:
        raise TypeError(f"not of {kind}")
    return kind(**value)
