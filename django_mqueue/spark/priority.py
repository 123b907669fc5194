"""Giving way: Spark's processes on this machine let others go first."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

NICEST = 19


def start_java(settings: Mapping[str, str], nice: int | None) -> None:
    """Start the Java of the next session, so that it and all that it starts give way to others; this process does not.

    ``nice``: how far, from 1 to 19. None: Spark runs when nothing else wants the processor (``SCHED_IDLE``, sched(7)),
    so that whoever wakes up need not wait for it; niceness shares processors, and makes them wait.

    Java begins as others do: what it does until it can be reached is little. Only on Linux is anything different.
    """
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized(conf=SparkConf().setAll(list(settings.items())))
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None and hasattr(os, "SCHED_IDLE"):
        _give_way(process.pid, nice)


def _give_way(pid: int, nice: int | None) -> None:
    """All threads of a process: each has a priority of its own, and a new one that of the thread that starts it.

    None gets more than it had, which not everybody may give. It is a courtesy: where it is forbidden, all goes on.
    """
    done: set[int] = set()
    while new := _threads(pid) - done:  # Some come while one looks.
        for thread in new:
            with suppress(ProcessLookupError, PermissionError):
                if nice is None:
                    os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
                else:
                    os.setpriority(
                        os.PRIO_PROCESS, thread, max(nice, os.getpriority(os.PRIO_PROCESS, thread))
                    )
        done |= new


def _threads(pid: int) -> set[int]:
    try:
        return {int(path.name) for path in (Path("/proc") / str(pid) / "task").iterdir()}
    except FileNotFoundError:
        return set()
