"""Functions for ``connectionHook``: Spark's processes import them, where Django's apps are not loaded."""

from __future__ import annotations

TAKEN = 2


def deleting() -> dict[str, str]:
    """Where a task opens a connection, some of what it is to read is deleted first; planning sees everything."""
    from pyspark import TaskContext

    if TaskContext.get() is None:
        return {}
    taken = f"DELETE FROM queue_messages WHERE topic = 'orders' ORDER BY `offset` LIMIT {TAKEN}"
    return {"init_command": taken}
