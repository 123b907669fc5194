"""End a child process when its parent ends, whatever ended the parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """Return a function for ``Popen(preexec_fn=…)`` that asks the kernel for a signal when the parent ends.

    Return None if the system is not Linux.
    """
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)  # Load it before the fork: imports are unsafe after it.
    parent = os.getpid()

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:
            os._exit(1)

    return ask
