"""The example's worker processes: ``runconsumer``, started and stopped by the commands that need them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from django.conf import settings

from example_project.environment.lineage import die_with_parent

ROOT = Path(__file__).resolve().parents[1]
"""The directory from which ``example_project`` can be imported."""

STOP_TIMEOUT = 30
"""Seconds in which a worker must finish its handlers after SIGTERM."""


class Workers:
    """A set of worker processes."""

    def __init__(
        self, names: Sequence[str], *arguments: str, variables: Mapping[str, str] | None = None
    ) -> None:
        command = [sys.executable, "-m", "django", "runconsumer", *arguments]
        command += ["--settings", settings.SETTINGS_MODULE]
        self._command = command
        self._environment = {**os.environ, **(variables or {})}
        self._processes = [self._start(name) for name in names]

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        # A new session: Ctrl-C reaches the worker only once, through ``stop``.
        return subprocess.Popen(
            [*self._command, "--name", name],
            cwd=ROOT,
            env=self._environment,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGTERM),
        )

    def start_another(self, name: str) -> None:
        self._processes.append(self._start(name))

    def running(self) -> bool:
        return any(process.poll() is None for process in self._processes)

    def failed(self) -> list[int]:
        """Return the exit codes of workers that failed."""
        return [process.returncode for process in self._processes if process.returncode]

    def stop(self) -> None:
        """Stop the workers when their current handlers finish.

        A worker that takes longer than ``STOP_TIMEOUT`` is killed, and its messages are delivered again.
        """
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def workers(
    names: Sequence[str], *arguments: str, variables: Mapping[str, str] | None = None
) -> Iterator[Workers]:
    """Run one worker for each name, with the arguments of ``runconsumer``, and stop them after the block.

    ``variables``: added to the workers' environment.
    """
    with _terminated_like_interrupted():
        started = Workers(names, *arguments, variables=variables)
        try:
            yield started
        finally:
            started.stop()


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Make SIGTERM raise ``KeyboardInterrupt``, as SIGINT does, so that ``finally`` blocks run."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
