"""``runconsumer --reload``: restart the worker when a file of the code changes, by Django's autoreloader.

As with ``runserver``, an outer process runs the command in an inner process, and restarts it each time it ends with
``CHANGED``. Django's own outer process kills the inner one at the first signal. This one lets the worker finish.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from django.utils import autoreload

CHANGED = 3
"""Exit code of the inner process after a file has changed."""


def run_with_reload(work: Callable[[], None], stop: Callable[[], None]) -> None:
    """Call ``work`` in a thread of the inner process. When a file changes or SIGTERM arrives, call ``stop`` and wait.

    If ``work`` has not begun by then, neither is called.
    """
    if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) != "true":
        sys.exit(_Outer().run())
    # The thread that acquires it first decides whether ``work`` is called. It is never released.
    first, ended = threading.Lock(), threading.Event()

    def main() -> None:
        if not first.acquire(blocking=False):
            return
        try:
            work()
        finally:
            ended.set()

    # The terminal sends it to the outer process also, which sends SIGTERM.
    signal.signal(signal.SIGINT, _ignore)
    try:
        try:
            autoreload.run_with_reloader(main)
        finally:
            # Two SIGTERMs may arrive: one for the whole group of processes, and one from the outer process.
            signal.signal(signal.SIGTERM, _ignore)
    finally:
        if not first.acquire(blocking=False):
            stop()
            ended.wait()


class _Outer:
    """Runs the inner process. The first SIGTERM or SIGINT asks it to stop, and the second kills it."""

    def __init__(self) -> None:
        self._inner: subprocess.Popen[bytes] | None = None
        self._reloader: autoreload.BaseReloader | None = None
        self._asked = threading.Event()

    def run(self) -> int:
        """Return the exit code of the command."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
        while not self._asked.is_set():
            self._inner = subprocess.Popen(autoreload.get_child_arguments(), env=environment, close_fds=False)
            if self._asked.is_set():  # The signal arrived before there was an inner process.
                self._inner.terminate()
            code = self._inner.wait()
            if self._asked.is_set() or code == 0:
                return 0 if code == CHANGED else max(code, 0)
            if code != CHANGED:
                print(f"the worker ended with exit code {code}; waiting for a change of a file", flush=True)
                self._wait_for_change()
        return 0

    def _on_signal(self, number: int, frame: object) -> None:
        if self._asked.is_set():
            if self._inner is not None:
                self._inner.kill()
            os._exit(128 + number)
        self._asked.set()
        if self._inner is not None:
            self._inner.terminate()
        if self._reloader is not None:
            self._reloader.stop()

    def _wait_for_change(self) -> None:
        """Wait until a file changes, because the inner process has ended, for example by an import error."""
        self._reloader = autoreload.get_reloader()
        try:
            if not self._asked.is_set():
                self._reloader.run(threading.main_thread())
        except SystemExit:  # How the reloader reports a change.
            pass
        self._reloader = None


def _ignore(number: int, frame: object) -> None:
    """Ignore a signal, but only in this process. With ``SIG_IGN``, programs that a handler runs would ignore it too."""
