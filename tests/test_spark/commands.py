"""The command as real processes, and what they leave behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.processes import Worker, wait_until

from .jobs import FAST_JVM

FITTING = (
    "--master", "local[2]", "--memory", "600m",
    *(word for key, value in FAST_JVM.items() if key != "spark.log.level" for word in ("--conf", f"{key}={value}")),
)  # fmt: skip
"""For a command's own Spark."""

SMALL = (*FITTING, "--nice", "0")
"""The same on a machine where other tests are at work, too: Spark would give way to them."""

NO_DJANGO = {"DJANGO_SETTINGS_MODULE": ""}


@contextmanager
def command(
    program: tuple[str, ...], arguments: tuple[str, ...], environment: dict[str, str]
) -> Iterator[Worker]:
    """The process, the leader of a session; whatever is left of that is killed at the end."""
    worker = Worker(arguments, environment, program=program)
    try:
        yield worker
    except BaseException as error:
        error.add_note(worker.output()[-6000:])
        raise
    finally:
        for pid in session_of(worker.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.close()


def session_of(leader: int) -> dict[int, str]:
    """The processes that a session's leader has started, and itself: their command lines. Zombies are none."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, session = (place / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found[int(place.name)] = (
                    (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
    return found


def wait_for_nothing_left(leader: int, timeout: float = 30) -> None:
    wait_until(lambda: not session_of(leader), f"nothing is left: {session_of(leader)}", timeout)
