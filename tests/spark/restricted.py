"""The command with verbs for tests, begun at the lowest priority by somebody who may neither get a higher one nor
change how processors are shared: ``python -m tests.spark.restricted …``, as ``trying``."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

from django_mqueue.spark.priority import NICEST

CAP_SYS_NICE, CAPBSET_DROP, NO_NEW_PRIVS, SECCOMP, FILTER = 23, 24, 38, 22, 2
SCHED_SETSCHEDULER = {"x86_64": 144, "aarch64": 119}
"""Numbers of Linux's: of capabilities, of what ``prctl`` does, and of the call, by machine."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def forbid(call: int) -> None:
    """From now on the system says EPERM to a call, as containers' filters do."""
    load, compare, answer = 0x20, 0x15, 0x06
    lines = [
        struct.pack("HBBI", load, 0, 0, 0),
        struct.pack("HBBI", compare, 0, 1, call),
        struct.pack("HBBI", answer, 0, 0, 0x00050000 | errno.EPERM),
        struct.pack("HBBI", answer, 0, 0, 0x7FFF0000),
    ]
    program = _Program(len(lines), b"".join(lines))
    _do(NO_NEW_PRIVS, 1)
    _do(SECCOMP, FILTER, ctypes.byref(program))


def _do(what: int, *values: object) -> None:
    if _libc.prctl(what, *values, *[0] * (4 - len(values))):
        raise OSError(ctypes.get_errno(), f"prctl {what}")


if __name__ == "__main__":
    os.setpriority(os.PRIO_PROCESS, 0, NICEST)
    if os.geteuid() == 0:  # Others have not got it.
        _do(CAPBSET_DROP, CAP_SYS_NICE)
    forbid(SCHED_SETSCHEDULER[platform.machine()])
    os.execv(sys.executable, [sys.executable, "-m", "tests.spark.trying", *sys.argv[1:]])
