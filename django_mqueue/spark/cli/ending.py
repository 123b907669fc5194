"""End the Spark that a run has started, so that no Java and no Python process remains after the run.

Java ends when its standard input, a pipe from this process, is closed, also when this process is killed. Spark's Python
processes end with Java. This module waits for Java.
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

JAVA_TIMEOUT = 20.0
"""Seconds for Java to end by itself."""

CANCEL_TIMEOUT = 3.0
"""Seconds for Spark to cancel its jobs."""


def is_caused_by_java_end(error: BaseException) -> bool:
    """Return whether the error was raised because Spark's Java ended: killed, stopped, or out of memory."""
    process, cause = _java(), error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if process is None or not (
        isinstance(cause, ConnectionError) or type(cause).__name__ == "Py4JNetworkError"
    ):
        return False
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)  # the connection breaks before the process has ended
    return process.poll() is not None


def end(spark: SparkSession | None) -> None:
    """Stop Spark, and wait until its Java has ended.

    Under ``spark-submit``, Java is the parent, and ends after this process. ``spark``: None if the start has failed; a
    Java may still run then.
    """
    with suppress(Exception):  # Java may have died before
        if spark is not None:
            spark.stop()
    if (context := _context()) is not None:
        process = _java()
        if process is not None:
            with suppress(Exception):
                context._gateway.shutdown()
            _end_java(process)
            context._gateway = context._jvm = None  # so that the next session starts a new Java


def end_now(spark: SparkSession | None, code: int) -> None:
    """Cancel the jobs of Spark, end Spark, and end this process with the exit code ``code``.

    This is called in a signal handler, so Spark may be in the middle of a call.
    """
    if spark is not None:
        # A separate thread uses a separate connection to Java.
        canceller = threading.Thread(target=_cancel, args=(spark,), daemon=True)
        canceller.start()
        canceller.join(CANCEL_TIMEOUT)
    if (process := _java()) is not None:
        _end_java(process)
    os._exit(code)


def _context() -> Any:
    """Return ``SparkContext`` if this process has a connection to Java. A client of Spark Connect has none."""
    module = sys.modules.get("pyspark.core.context")
    return None if module is None or module.SparkContext._gateway is None else module.SparkContext


def _java() -> subprocess.Popen[Any] | None:
    """Return the Java that this process has started. None under ``spark-submit``, and with Spark Connect."""
    context = _context()
    return None if context is None else getattr(context._gateway, "proc", None)


def _cancel(spark: SparkSession) -> None:
    with suppress(Exception):
        if _context() is not None:
            spark.sparkContext.cancelAllJobs()
        else:
            spark.interruptAll()


def _end_java(process: subprocess.Popen[Any]) -> None:
    with suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(JAVA_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
