"""A job of Spark that can be stopped, and watched, while it runs."""

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
    """The numbers of a frame's only column; None if it was stopped. ``watch`` is called every second meanwhile."""
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
                cancel(tag)  # Again, until it ends: before its job has begun there is nothing to cancel.
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
    """What gives this thread's jobs a tag, and what cancels all of a tag. In PySpark 4.3 ``interruptTag`` finds nothing
    but on a Spark Connect server."""
    try:
        context = spark.sparkContext
    except Exception:
        return spark.addTag, spark.interruptTag
    return context.addJobTag, context.cancelJobsWithTag


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once, about; a Spark Connect server does not tell."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:
        return int(spark.conf.get("spark.sql.shuffle.partitions", "8") or 8)
