"""Functions for ``connectionHook``. Spark's processes import them without loading Django's apps."""

from __future__ import annotations

import os
import threading

TAKEN = 2


def deleting() -> dict[str, str]:
    """Delete some messages each time a task opens a connection. The planner still sees all of them."""
    from pyspark import TaskContext

    if TaskContext.get() is None:
        return {}
    taken = f"DELETE FROM queue_messages WHERE topic = 'orders' ORDER BY `offset` LIMIT {TAKEN}"
    return {"init_command": taken}


def dying() -> dict[str, str]:
    """Kill the process of a task's first attempt when it opens a connection."""
    from pyspark import TaskContext

    if (task := TaskContext.get()) is not None and task.attemptNumber() == 0:
        os._exit(1)
    return {}


def hanging() -> dict[str, str]:
    """Block the second task: it never gets a connection."""
    from pyspark import TaskContext

    if (task := TaskContext.get()) is not None and task.partitionId() == 1:
        threading.Event().wait()
    return {}
