"""Keeps one program, and does not let it outlive whoever asked for it.

``python -m example_project.environment.watchdog LOCK PROGRAM ARGUMENT…``, run by server.py: it says the
program's process id on its output, takes the names of signals on its input, and when its input ends (its
parent has ended, however) it stops the program. Only ever by the id of its own child, so it cannot hit another.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from .lineage import die_with_parent

PATIENCE = 60.0
"""Seconds that the program gets to end by itself."""


def main(lock: int, argv: list[str]) -> int:
    """Returns the program's exit code, negative for a signal as ``Popen`` has it."""
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
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    code = main(int(sys.argv[1]), sys.argv[2:])
    try:
        print(f"ended {code}", flush=True)
    except BrokenPipeError:  # nobody left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
