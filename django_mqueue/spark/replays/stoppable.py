"""Run a Spark job that can be stopped and watched."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..collecting import collect_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOK_EVERY = 1.0


def computed(
    spark: SparkSession,
    frame: DataFrame,
    stopping: threading.Event | None,
    watch: Callable[[], None],
) -> list[int] | None:
    """Return the numbers in the only column of a frame; None if the job was stopped.

    ``watch`` is called every second while the job runs.
    """
    tag, ended = f"mqueue-{uuid.uuid4().hex}", threading.Event()
    add, cancel = _tags(spark)
    found: list[int] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            add(tag)
            found.extend(int(row[0]) for row in collect_all(frame))
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=work, name="mqueue-replay", daemon=True)
    thread.start()
    stopped = False
    try:
        while not ended.wait(LOOK_EVERY):
            watch()
            if stopping is not None and stopping.is_set():
                stopped = True
                cancel(tag)  # Repeat until it ends: before the job begins, this cancels nothing.
    except BaseException:
        cancel(tag)
        raise
    thread.join()
    if failed:
        if stopped:
            return None
        raise failed[0]
    return found


def _tags(spark: SparkSession) -> tuple[Callable[[str], object], Callable[[str], object]]:
    """Return the function that tags this thread's jobs, and the function that cancels all jobs with a tag.

    In PySpark 4.3, ``interruptTag`` finds jobs only on a Spark Connect server.
    """
    try:
        context = spark.sparkContext
    except Exception:
        return spark.addTag, spark.interruptTag
    return context.addJobTag, context.cancelJobsWithTag


def parallelism(spark: SparkSession) -> int:
    """Return about how many tasks run at once. For a Spark Connect server, return the number of shuffle partitions."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:
        return int(spark.conf.get("spark.sql.shuffle.partitions", "8") or 8)
