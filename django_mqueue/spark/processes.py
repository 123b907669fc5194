"""Spark's Python processes on executors, each of which runs task after task."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""What ``mallopt`` of glibc calls them (malloc.h)."""

MIB = 1_048_576


@cache
def keep_loaded() -> None:
    """Take what is loaded by now out of the collector's sight. Called when a process has done its first task.

    After each task Spark has all garbage collected (``worker`` in pyspark/daemon.py). Most of what is looked through
    for that are modules, which never go: without them it takes about a millisecond, with them some forty.
    """
    gc.freeze()


@cache
def keep_memory() -> None:
    """Let this process keep some memory for its next page. Called before the first one is read.

    A page goes through a few pieces of memory of some MiB each. By default glibc has the system take such pieces back
    and give them anew, cleared, for each page (mallopt(3)), which was a third of the processor time of reading.
    """
    with suppress(OSError, AttributeError):  # Another C library: all works without.
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, 32 * MIB)
        mallopt(TRIM_THRESHOLD, 64 * MIB)
