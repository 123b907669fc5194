"""Functions for ``connectionHook``. Spark's processes import them without loading Django's apps."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

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


def stalling() -> dict[str, str]:
    """Block the first attempt of the second task. A twin of it, on another host, goes on."""
    from pyspark import TaskContext

    if (task := TaskContext.get()) is not None and (task.partitionId(), task.attemptNumber()) == (1, 0):
        threading.Event().wait()
    return {}


def losing() -> dict[str, str]:
    """Kill the executor that runs the first attempt of the second task: Java, and with it all its tasks."""
    from pyspark import TaskContext

    if (task := TaskContext.get()) is not None and (task.partitionId(), task.attemptNumber()) == (1, 0):
        daemon = os.getppid()
        java = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(java, signal.SIGKILL)
    return {}
