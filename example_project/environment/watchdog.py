"""Run one program, and stop it when the parent ends.

server.py runs ``python -m example_project.environment.watchdog LOCK PROGRAM ARGUMENT…``. The watchdog prints the
program's process id, and reads names of signals from its input. It stops the program when its input ends, also
by the parent's death. It signals only its own child, so it cannot hit another process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from .lineage import die_with_parent

STOP_TIMEOUT = 60.0
"""Seconds in which the program must end after SIGTERM."""


def main(lock: int, argv: list[str]) -> int:
    """Run the program and return its exit code, negative for a signal, as in ``Popen``."""
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        pass_fds=(lock,),
        preexec_fn=die_with_parent(),
    )
    print(child.pid, flush=True)
    threading.Thread(target=_obey, args=(child,), daemon=True).start()
    return child.wait()


def _obey(child: subprocess.Popen[bytes]) -> None:
    for line in sys.stdin:
        child.send_signal(signal.Signals[line.strip()])
    child.terminate()
    try:
        child.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    code = main(int(sys.argv[1]), sys.argv[2:])
    try:
        print(f"ended {code}", flush=True)
    except BrokenPipeError:  # The parent has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
