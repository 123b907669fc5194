"""Run the command as a real process, and find the processes that it leaves behind."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.processes import Worker, wait_until
from tests.support.waiting import PATIENCE

from .jobs import FAST_JVM

SMALL = (
    "--master", "local[2]", "--memory", "600m",
    *(word for key, value in FAST_JVM.items() if key != "spark.log.level" for word in ("--conf", f"{key}={value}")),
)  # fmt: skip
"""Arguments for a command that starts its own Spark."""

NO_DJANGO = {"DJANGO_SETTINGS_MODULE": ""}


def arguments_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options of a connection as arguments of the command."""
    named = {"--" + re.sub("[A-Z]", r"-\g<0>", name).lower(): value for name, value in options.items()}
    return tuple(word for pair in named.items() for word in pair)


@contextmanager
def command(
    program: tuple[str, ...], arguments: tuple[str, ...], environment: dict[str, str]
) -> Iterator[Worker]:
    """Run the program. All processes that it started are killed at the end."""
    worker = Worker(arguments, environment, program=program)
    try:
        yield worker
    except BaseException as error:
        error.add_note(worker.output()[-6000:])
        raise
    finally:
        for pid in started_by(worker.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.close()


def started_by(leader: int) -> dict[int, str]:
    """Return the command lines of the session leader and its child processes, without zombies."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, session = (place / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found[int(place.name)] = (
                    (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
    return found


def wait_for_nothing_left(leader: int, *, seconds: float = PATIENCE) -> None:
    wait_until(lambda: not started_by(leader), f"nothing is left: {started_by(leader)}", seconds=seconds)
