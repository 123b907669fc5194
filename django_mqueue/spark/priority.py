"""Giving way: Spark's processes on this machine let others go first, on its processors and at the database."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import TypeVar

NICEST = 19
ATTEMPTS = 20
"""Of two seconds, to set a session's niceness."""

REST, LONGEST_REST = 2, 5.0
"""Each second that the server works for one who gives way it is left alone for so many, but for no more at once."""

Result = TypeVar("Result")


def start_java(settings: Mapping[str, str], nice: int | None) -> None:
    """Start the Java of the next session, so that it and all that it starts give way to others; this process does not.

    ``nice``: how far, from 1 to 19. None: Spark runs when nothing else wants the processor (``SCHED_IDLE``, sched(7)),
    so that whoever wakes up need not wait for it; niceness shares processors, and makes them wait. And it leaves one
    processor alone, unless there is no other: where all are busy, however idly, who wakes up has to interrupt one.

    Java has a session of its own: Linux shares processors among sessions first (autogroups, sched(7)), and looks at
    the priority of a process only within its session.

    Java begins as others do: what it does until it can be reached is little. Only on Linux is anything different.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if not hasattr(os, "SCHED_IDLE") or SparkContext._gateway is not None:
        return
    gateway = launch_gateway(SparkConf().setAll(list(settings.items())), {"start_new_session": True})
    SparkContext._ensure_initialized(gateway=gateway)
    if (process := getattr(gateway, "proc", None)) is not None:
        _give_way(process.pid, nice)
        _let_session_give_way(process.pid, NICEST if nice is None else nice)


def _give_way(pid: int, nice: int | None) -> None:
    """All threads of a process: each has a priority of its own, and a new one that of the thread that starts it.
    It is the same with the processors that they may run on.

    None gets more than it had, which not everybody may give. It is a courtesy: where it is forbidden, all goes on.
    """
    done: set[int] = set()
    processors = os.sched_getaffinity(0)
    others = processors - {min(processors)}
    while new := _threads(pid) - done:  # Some come while one looks.
        for thread in new:
            with suppress(ProcessLookupError, PermissionError):
                if nice is None:
                    os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
                    os.sched_setaffinity(thread, others or processors)
                else:
                    os.setpriority(
                        os.PRIO_PROCESS, thread, max(nice, os.getpriority(os.PRIO_PROCESS, thread))
                    )
        done |= new


def _let_session_give_way(pid: int, nice: int) -> None:
    """The session that a process leads, among the machine's other ones. A courtesy, too.

    There is a niceness of sessions where the system shares processors among them, and unless a container or a service
    has a share of its own.
    """
    place, pause = Path(f"/proc/{pid}/autogroup"), Event()
    for _ in range(ATTEMPTS):
        try:
            place.write_text(str(nice))
        except BlockingIOError:  # The system lets this be done ten times a second, by all processes together.
            pause.wait(0.1)
        except OSError:
            return
        else:
            return


def _threads(pid: int) -> set[int]:
    try:
        return {int(path.name) for path in (Path("/proc") / str(pid) / "task").iterdir()}
    except FileNotFoundError:
        return set()


def gives_way() -> bool:
    """Whether this process was told to let others go first: by the system's scheduler, or by its niceness."""
    idle = hasattr(os, "SCHED_IDLE") and os.sched_getscheduler(0) == os.SCHED_IDLE
    return idle or os.getpriority(os.PRIO_PROCESS, 0) > 0


class Rests:
    """Pauses of one who gives way between what it asks the server for.

    The server works for all alike: who asks for one page after the other has a processor of it to himself, however
    low his own priority is. So he asks for the next one when the server had the time to work for others, twice as
    long as it has worked for him. What he does himself meanwhile is part of that.
    """

    def __init__(self) -> None:
        self._gives_way = gives_way()
        self._until = 0.0
        self._pause = Event()

    def between(self, ask: Callable[[str], Result], using: str) -> Result:
        """What ``ask`` finds, when it is time; at once where the process does not give way."""
        if not self._gives_way:
            return ask(using)
        if (left := self._until - time.monotonic()) > 0:
            self._pause.wait(left)
        begun = time.monotonic()
        try:
            return ask(using)
        finally:
            now = time.monotonic()
            self._until = now + min(REST * (now - begun), LONGEST_REST)
