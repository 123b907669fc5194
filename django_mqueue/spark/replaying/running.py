"""A job of Spark that can be stopped, and watched, while it runs."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

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
    found: list[int] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            spark.addTag(tag)
            found.extend(int(row[0]) for row in frame.collect())
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
            if not stopped and stopping is not None and stopping.is_set():
                stopped = True
                spark.interruptTag(tag)
    except BaseException:
        spark.interruptTag(tag)
        raise
    thread.join()
    if failed:
        if stopped:
            return None
        raise failed[0]
    return found
