"""File locks: one maker at a time, and a sign that a directory is in use. The kernel drops them at any death."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .layout import make


def try_lock(path: Path) -> int | None:
    """Lock and return the open file's number, or None when another holds it. Closing unlocks."""
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        return None
    return number


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock, and hold it."""
    make(path.parent)
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)
