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

    After each task, Spark runs a full garbage collection (``worker`` in pyspark/daemon.py). Most objects that it
    examines belong to modules, which are never freed. Without these objects it takes about a millisecond, with them
    about forty.
    """
    gc.freeze()


@cache
def keep_memory() -> None:
    """Let this process keep some memory for its next page. Called before the first page is read.

    A page needs a few blocks of memory of some MiB each. By default, glibc returns such blocks to the system, which
    clears them and provides them again for each page (mallopt(3)). This took a third of the processor time of reading.
    """
    with suppress(OSError, AttributeError):  # Another C library: reading works without this.
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, 32 * MIB)
        mallopt(TRIM_THRESHOLD, 64 * MIB)
