"""Giving way: Spark's processes on this machine let others go first."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NICEST = 19


def give_way(spark: SparkSession, nice: int) -> None:
    """Make the JVM of a session of this process, and all that it starts from now on, so much nicer (0 to 19).

    This process stays as it is. Does nothing where the JVM is not ours: under spark-submit, and with Spark Connect.
    """
    process = getattr(getattr(getattr(spark, "sparkContext", None), "_gateway", None), "proc", None)
    if nice == 0 or process is None:
        return
    for task in _tasks(process.pid):
        with suppress(OSError):  # A thread that has ended meanwhile, or one that is nicer already.
            os.setpriority(os.PRIO_PROCESS, task, nice)


def _tasks(pid: int) -> list[int]:
    """Linux has a priority for each thread, and a new one takes that of the thread that starts it."""
    try:
        return [int(path.name) for path in (Path("/proc") / str(pid) / "task").iterdir()]
    except FileNotFoundError:
        return [pid]
