"""Real worker processes on the test database: start, stop and kill them, and wait for them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any
from urllib.parse import quote, urlencode

from django.db import connections

from example_project.environment.lineage import die_with_parent

from .waiting import PATIENCE
from .waiting import gather as gather
from .waiting import wait_until as wait_until

ROOT = Path(__file__).resolve().parents[2]

FAST: dict[str, Any] = {
    "POLL_INTERVAL": 0.02,
    "DISCOVERY_INTERVAL": 0.1,
    "LEASE_DURATION": 60,
    "LEASE_RENEWAL_INTERVAL": 0.4,
}
"""The ``MQUEUE`` setting of most tests with processes. Leases are long: ``let_worker_die`` ends them."""


def database_ms(using: str = "default") -> int:
    """Return the database's time, in epoch milliseconds."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000")
        return int(cursor.fetchone()[0])


def database_url(alias: str = "default", **more: str) -> str:
    """Return the URL of the database of ``alias``. ``more`` are options of the connection."""
    found = connections[alias].settings_dict
    options = {name: value for name, value in found["OPTIONS"].items() if isinstance(value, str)}
    place = f"{found['HOST'] or 'localhost'}{':' + str(found['PORT']) if found['PORT'] else ''}"
    user = quote(found["USER"], safe="") + (
        f":{quote(found['PASSWORD'], safe='')}" if found["PASSWORD"] else ""
    )
    return f"mysql://{user}@{place}/{found['NAME']}?{urlencode({**options, **more})}"


class Worker:
    """One ``runconsumer`` process, or another Python ``program``: a module's name, or the path of a file.

    ``inherited``: the environment to which ``environment`` is added, by default this process's. ``cwd``: the directory
    of the code.
    """

    def __init__(
        self,
        arguments: tuple[str, ...],
        environment: Mapping[str, str],
        program: tuple[str, ...] = ("django", "runconsumer"),
        *,
        inherited: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> None:
        self._log: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        is_file = program[0].endswith(".py")
        self.process = subprocess.Popen(
            [sys.executable, *(() if is_file else ("-m",)), *program, *arguments],
            cwd=cwd,
            env={
                **(os.environ if inherited is None else inherited),
                "DJANGO_SETTINGS_MODULE": "tests.support.worker_settings",
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        self.pid = self.process.pid
        self.name = arguments[arguments.index("--name") + 1] if "--name" in arguments else ""

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def is_stopped(self) -> bool:
        """Return True if the process is stopped by SIGSTOP."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Return the exit code, or a negative signal number. Fail with the output if the process does not end."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"worker {self.pid} did not end in {timeout:g} s:\n{self.output()}"
            ) from None

    def ask_to_stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Wait until the process handles the signal, and send it."""
        # While the worker starts, it has no handler for the signal. The signal would kill it.
        wait_until(lambda: not self.running or self.can_be_asked, f"worker {self.pid} hears SIGTERM")
        if self.running:
            self.send(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask the process to stop, and return the exit code."""
        self.ask_to_stop(number)
        return self.wait()

    @property
    def can_be_asked(self) -> bool:
        """Return True if the process has a handler for SIGTERM."""
        caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)

    def output(self) -> str:
        """Return the output so far."""
        self._log.flush()
        return Path(f"/proc/self/fd/{self._log.fileno()}").read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """Kill the process, and the processes that it has started."""
        if self.running:
            self.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._log.close()


class Workers:
    """Worker processes of one test. The ``with`` block ends all of them."""

    def __init__(self, mqueue: Mapping[str, Any] = FAST, using: str = "default") -> None:
        self.mqueue, self.using = dict(mqueue), using
        self.all: list[Worker] = []

    def start(
        self, *arguments: str, clock: float = 0, url: str | None = None, call_seconds: float | None = None
    ) -> Worker:
        """Start ``runconsumer ARGUMENT…``. ``clock`` is the error of its machine's clocks, in seconds.

        ``call_seconds``: the time that the worker takes for the duration of each handler's call.
        """
        return self.run(
            ("django", "runconsumer"), *arguments, TEST_CLOCK=str(clock), DATABASE_URL=url,
            TEST_CALL_SECONDS=None if call_seconds is None else str(call_seconds),
        )  # fmt: skip

    def run(self, program: tuple[str, ...], *arguments: str, **environment: str | None) -> Worker:
        """Start ``python -m PROGRAM ARGUMENT…`` with the settings of a worker and more environment variables."""
        own = {"DATABASE_URL": database_url(self.using), "TEST_MQUEUE": json.dumps(self.mqueue)}
        given = {name: value for name, value in environment.items() if value is not None}
        worker = Worker(arguments, own | given, program)
        self.all.append(worker)
        return worker

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outputs = []
        for worker in self.all:
            code = worker.process.poll()
            worker.kill() if worker.running else None
            outputs.append(f"--- worker {worker.pid} (exit code {code}) ---\n{worker.output()[-4000:]}")
            worker.close()
        if error is not None:
            error.add_note("\n".join(outputs))
