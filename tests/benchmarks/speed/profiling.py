"""Sample what the threads of a process do, to see what limits a worker.

A sample of a thread counts for its innermost function of this project, and notes if it was inside the database driver.
The sampler needs about one percent of a core.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from types import FrameType

EVERY = 0.005
"""Seconds between two samples."""
OURS, WRAPPERS = "django_mqueue", "django_mqueue.store.connection"
WAITS = "waits for work"
WAITING = {"_work", "finished", "wait"}
"""Functions that wait in C, by ``SimpleQueue.get`` or ``select``. The driver's waits have Python frames."""
Line = tuple[str, str, float]
"""A thread, what it did, and the part of the samples."""


class Profile:
    def __init__(self) -> None:
        self._found: Counter[tuple[str, str]] = Counter()
        self._samples = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self, most: int = 12) -> list[Line]:
        """Return the most frequent lines. The part is of all samples: 1.0 is one thread all the time."""
        if self._thread is None:
            return []
        self._over.set()
        self._thread.join()
        return [(*line, count / self._samples) for line, count in self._found.most_common(most)]

    def _sample(self) -> None:
        me = threading.get_ident()
        while not self._over.wait(EVERY):
            self._samples += 1
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            for ident, frame in sys._current_frames().items():
                if ident != me and (what := described(frame)):
                    self._found[names.get(ident, "?").rstrip("0123456789-_"), what] += 1


def described(frame: FrameType | None) -> str | None:
    """Return the innermost function of this project, and what it waits for. None if there is none."""
    inner: list[str] = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(OURS) and not module.startswith(WRAPPERS):
            kind = _kind(inner) or (WAITS if not inner and frame.f_code.co_name in WAITING else "")
            return f"{module.removeprefix(OURS + '.')}.{frame.f_code.co_name}{kind and f' ({kind})'}"
        inner.append(f"{module}.{frame.f_code.co_name}")
        frame = frame.f_back
    return None


def _kind(inner: list[str]) -> str:
    if any(name.startswith(("MySQLdb", "django.db.backends")) for name in inner):
        return "waits for the server"
    if any(name.startswith(("threading.", "queue.", "selectors.")) for name in inner):
        return WAITS
    return ""
