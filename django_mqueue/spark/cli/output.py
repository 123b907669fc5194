"""The output of the command: the result on stdout, all else on stderr. Progress is a bar only on a terminal.

Some of this text comes from publishers. ``for_terminal`` changes it so that it cannot control the terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TextIO

from ...printing import for_terminal

LINE_EVERY = 10.0
"""Seconds between two lines of progress, if stderr is not a terminal."""


class Output:
    """Writes to two text streams. None: the present ``sys.stdout`` or ``sys.stderr``."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out, self._err = out, err
        self._progress: Progress | None = None

    @property
    def err(self) -> TextIO:
        return self._err or sys.stderr

    def tell(self, text: str) -> None:
        """Write the result to stdout."""
        _write(self._out or sys.stdout, text)

    def say(self, text: str) -> None:
        """Write a line for the user to stderr, above a bar of progress."""
        if self._progress is not None and self._progress.bar is not None:
            self._progress.bar.write(for_terminal(text), file=self.err)
        else:
            _write(self.err, text)

    @contextmanager
    def progress(self, unit: str) -> Iterator[Progress]:
        """Report progress in the block: ``with job.progress("messages") as progress: progress(10, 1000)``."""
        self._progress = Progress(self, unit)
        try:
            yield self._progress
        finally:
            self._progress.end()
            self._progress = None


class Progress:
    """Shows how much of the work is done: as a bar on a terminal, otherwise as a line every few seconds."""

    def __init__(self, output: Output, unit: str, every: float = LINE_EVERY) -> None:
        self._output, self._unit, self._every = output, unit, every
        self._first = self._done = self._said = 0
        self._total: int | None = None
        self._begun: float | None = None
        self.bar: Any = None

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show that ``done`` of ``total`` is done. ``total``: None if it is unknown."""
        added, self._done, self._total = max(done - self._done, 0), max(done, self._done), total
        if self._begun is None:
            self._begun = self._at = time.monotonic()
            self._first, added = done, 0  # Work of an earlier run.
            if (err := self._output.err).isatty() and find_spec("tqdm") is not None:
                from tqdm import tqdm

                unit = f" {self._unit}"
                self.bar = tqdm(
                    total=total, initial=done, unit=unit, unit_scale=True, file=err, dynamic_ncols=True
                )
        if self.bar is not None:
            self.bar.update(added)
        elif time.monotonic() >= self._at + self._every:
            self._line()

    def _line(self) -> None:
        assert self._begun is not None
        self._at, self._said = time.monotonic(), self._done
        part = f" of {self._total:,} ({self._done / self._total:.0%})" if self._total else ""
        rate = (self._done - self._first) / max(self._at - self._begun, 0.001)
        self._output.say(f"{self._done:,}{part} {self._unit}, {rate:,.0f}/s")

    def end(self) -> None:
        if self.bar is not None:
            self.bar.close()
        elif self._done != self._said:
            self._line()


def _write(stream: TextIO, text: str) -> None:
    stream.write(f"{for_terminal(text)}\n")
    stream.flush()
