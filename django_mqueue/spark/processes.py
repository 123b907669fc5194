"""Spark's Python processes on executors, each of which runs task after task."""

from __future__ import annotations

import gc
from functools import cache


@cache
def keep_loaded() -> None:
    """Take what is loaded by now out of the collector's sight. Called when a process has done its first task.

    After each task Spark has all garbage collected (``worker`` in pyspark/daemon.py). Most of what is looked through
    for that are modules, which never go: without them it takes about a millisecond, with them some forty.
    """
    gc.freeze()
