"""The liveness file of a worker: its age shows whether the worker's loop runs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

TOUCH_INTERVAL = 0.5
"""Seconds between two changes of the file's time."""


class LivenessFile:
    """A file that the loop touches in each turn, and that is removed at the end. ``path``: None for no file.

    The loop also touches it while the worker waits for a database that is unavailable: a restart would not help.
    """

    def __init__(self, path: str | None) -> None:
        self.path = None if path is None else Path(path)
        self._touched_at = -math.inf

    def touch(self) -> None:
        """Touch the file. If that fails, the file gets old, and the health check reports it."""
        now = time.monotonic()
        if self.path is not None and now >= self._touched_at + TOUCH_INTERVAL:
            self._touched_at = now
            with suppress(OSError):
                self.path.touch()

    def __enter__(self) -> LivenessFile:
        """Create the file. Raise ``OSError`` if its path cannot be written."""
        if self.path is not None:
            self.path.touch()
        return self

    def __exit__(self, *error: object) -> None:
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)


class LivenessFiles:
    """The liveness file of a supervisor: it is as old as the oldest file of its child processes.

    ``slots``: the number of children. Each has a file of its own, ``PATH.NUMBER``. A child that was just started counts
    as alive, and a child that is not running gets older.
    """

    def __init__(self, path: str | None, slots: int) -> None:
        self._file = LivenessFile(path)
        self._seen = dict.fromkeys(range(1, slots + 1), time.time())

    def of_child(self, number: int) -> str | None:
        """Return the path of a child's file."""
        return None if self._file.path is None else f"{self._file.path}.{number}"

    def started(self, number: int) -> None:
        self._seen[number] = time.time()

    def update(self, numbers: Collection[int]) -> None:
        """Give the file the time of the oldest child's file. ``numbers``: of the children that still run or start."""
        if (path := self._file.path) is None or not numbers:
            return
        for number in numbers:
            with suppress(OSError):
                self._seen[number] = max(self._seen[number], os.stat(f"{path}.{number}").st_mtime)
        oldest = min(self._seen[number] for number in numbers)
        with suppress(OSError):
            if not path.exists():
                path.touch()
            os.utime(path, (oldest, oldest))

    def __enter__(self) -> LivenessFiles:
        self._file.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for number in self._seen:
            LivenessFile(self.of_child(number)).__exit__()
        self._file.__exit__()
