"""Run other programs."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import FrameType

from .errors import CommandFailed
from .layout import ROOT
from .lineage import die_with_parent

STOP_TIMEOUT = 30.0
"""Seconds in which a program must end after a signal."""


def run(argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Run a program and return its output. Raises ``CommandFailed`` with the end of the output."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise CommandFailed(f"{words[0]}: {error}") from error
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-40:])
        raise CommandFailed(f"{' '.join(words)} ended with {done.returncode}:\n{tail}")
    return done.stdout


def forward(
    argv: Sequence[str | Path], *, env: Mapping[str, str], cwd: Path = ROOT, output: Path | None = None
) -> int:
    """Run a program in the foreground and return its exit code (128 + n for signal n).

    ``output``: a file for the program's output, instead of the terminal.

    The program gets Ctrl-C from the terminal, and this function waits for its end. If this process gets SIGTERM or is
    killed, the program gets SIGTERM.
    """
    with output.open("wb") if output else nullcontext() as file:
        child = subprocess.Popen(
            [str(word) for word in argv],
            env=dict(env),
            cwd=cwd,
            stdout=file,
            stderr=file and subprocess.STDOUT,
            preexec_fn=die_with_parent(),
        )
        try:
            code = child.wait()
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                child.terminate()
            _end(child)
            raise
    return code if code >= 0 else 128 - code


def _end(child: subprocess.Popen[bytes]) -> None:
    for send_signal in (child.terminate, child.kill):
        try:
            child.wait(STOP_TIMEOUT)
            return
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            send_signal()
    child.wait()


def exit_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise ``SystemExit``, so that ``finally`` blocks stop all children."""

    def unwind(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores it.
            signal.signal(number, unwind)


def with_database(url: str) -> dict[str, str]:
    """Return this process's environment with ``DATABASE_URL``."""
    return {**os.environ, "DATABASE_URL": url}
