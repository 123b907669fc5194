"""Settings of Spark's Python processes on executors. Such a process runs one task after another."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt`` (malloc.h)."""

MIB = 1_048_576


@cache
def keep_loaded() -> None:
    """Exclude all objects that exist now from garbage collection. Called when a process has done its first task.

    After each task, Spark runs a full garbage collection (``worker`` in pyspark/daemon.py). Most objects belong to
    modules, which are never freed. Excluding them shortens a collection from about forty milliseconds to one.
    """
    gc.freeze()


@cache
def keep_memory() -> None:
    """Let this process reuse the memory of one page for the next page. Called before the first page is read.

    A page needs a few blocks of some MiB each. By default, glibc returns such blocks to the system, and requests new
    ones, cleared, for the next page (mallopt(3)). This took a third of the CPU time of reading.
    """
    with suppress(OSError, AttributeError):  # Another C library: reading works without this.
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, 32 * MIB)
        mallopt(TRIM_THRESHOLD, 64 * MIB)
