"""Ending the Spark that a run has started: nothing of it, no Java and no Python process, outlives the run.

Spark's Java ends by itself when its standard input does, which is a pipe from this process, and its Python processes
end with it; so does all of it when this process is killed. Here it is waited for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 20.0
"""Seconds for Java to end by itself."""

CANCEL = 3.0
"""Seconds for Spark to hear that its jobs are not wanted any more."""


def by_end_of_java(error: BaseException) -> bool:
    """Whether it came of this: Spark's Java was killed, is out of memory, or was told to end with all of a service."""
    process = _java()
    if process is None or not (
        isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError"
    ):
        return False
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)  # the line is cut before it is gone
    return process.poll() is not None


def end(spark: SparkSession | None) -> None:
    """Stop it, and wait until its Java is gone; under spark-submit that is the parent, and ends after this process.

    None: a start that has failed may have left a Java.
    """
    with suppress(Exception):  # whatever it is worth: Java may have died before
        if spark is not None:
            spark.stop()
    if _classic():
        from pyspark import SparkContext

        process = _java()
        if process is not None:
            with suppress(Exception):
                SparkContext._gateway.shutdown()
            _end_java(process)
            SparkContext._gateway = SparkContext._jvm = None  # another session starts another one


def end_now(spark: SparkSession | None, code: int) -> None:
    """Cancel what Spark does, end it and this process. Called in a signal handler: Spark may be in mid-call."""
    if spark is not None:
        # In a thread of its own, which has its own line to Java.
        canceller = threading.Thread(target=_cancel, args=(spark,), daemon=True)
        canceller.start()
        canceller.join(CANCEL)
    if (process := _java()) is not None:
        _end_java(process)
    os._exit(code)


def _classic() -> bool:
    """Whether there is a Java of this process's own; Spark Connect has none."""
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None


def _java() -> subprocess.Popen[Any] | None:
    """The process; None where there is none of ours: under spark-submit, and with Spark Connect."""
    if not _classic():
        return None
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


def _cancel(spark: SparkSession) -> None:
    with suppress(Exception):
        if _classic():
            spark.sparkContext.cancelAllJobs()
        else:
            spark.interruptAll()


def _end_java(process: subprocess.Popen[Any]) -> None:
    with suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
