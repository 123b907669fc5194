"""Functions for ``connectionHook``: Spark's processes import them, where Django's apps are not loaded."""

from __future__ import annotations

import os
import threading

TAKEN = 2


def deleting() -> dict[str, str]:
    """Where a task opens a connection, some of what it is to read is deleted first; planning sees everything."""
    from pyspark import TaskContext

    if TaskContext.get() is None:
        return {}
    taken = f"DELETE FROM queue_messages WHERE topic = 'orders' ORDER BY `offset` LIMIT {TAKEN}"
    return {"init_command": taken}


def dying() -> dict[str, str]:
    """The first attempt of a task ends with its process, where it opens a connection."""
    from pyspark import TaskContext

    if (task := TaskContext.get()) is not None and task.attemptNumber() == 0:
        os._exit(1)
    return {}


def hanging() -> dict[str, str]:
    """The second task never gets a connection."""
    from pyspark import TaskContext

    if (task := TaskContext.get()) is not None and task.partitionId() == 1:
        threading.Event().wait()
    return {}
