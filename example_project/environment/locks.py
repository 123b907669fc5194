"""File locks: they allow one writer at a time, and mark a directory as in use.

The kernel releases a lock when its process ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .layout import make


def try_lock(path: Path) -> int | None:
    """Lock the file and return its descriptor, or None if another process holds the lock. Closing unlocks."""
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        return None
    return number


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock, and hold it during the block."""
    make(path.parent)
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)
