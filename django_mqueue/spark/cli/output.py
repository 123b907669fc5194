"""The output of the command: the result on stdout, all else on stderr. Progress is a bar only on a terminal.

Publishers have written some of this text. ``for_terminal`` makes it safe, so that it cannot control the terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Protocol, TextIO

from ...drawing.printing import for_terminal

LINE_EVERY = 10.0
"""Seconds between two lines of progress, if stderr is not a terminal."""


class Progress(Protocol):
    def update(self, n: int, /) -> object: ...


class Lines:
    """Logs progress as lines."""

    def __init__(
        self, total: int | None, unit: str, say: Callable[[str], None], every: float = LINE_EVERY
    ) -> None:
        self._total, self._unit, self._say, self._every = total, unit, say, every
        self._done = self._said = 0
        self._begun = self._at = time.monotonic()

    def update(self, n: int) -> None:
        self._done += n
        if time.monotonic() >= self._at + self._every:
            self.line()

    def line(self) -> None:
        self._at, self._said = time.monotonic(), self._done
        part = f" of {self._total:,} ({self._done / self._total:.0%})" if self._total else ""
        rate = self._done / max(self._at - self._begun, 0.001)
        self._say(f"{self._done:,}{part} {self._unit}, {rate:,.0f}/s")

    def end(self) -> None:
        if self._done != self._said:
            self.line()


class Output:
    """Writes to two text streams. None: the process's own stream, as it is at the time of writing."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out, self._err = out, err
        self._bars = 0

    def tell(self, text: str) -> None:
        _write(self._out or sys.stdout, text)

    def say(self, text: str) -> None:
        err = self._err or sys.stderr
        if self._bars:
            from tqdm import tqdm

            tqdm.write(for_terminal(text), file=err)
        else:
            _write(err, text)

    @contextmanager
    def progress(self, total: int | None, unit: str) -> Iterator[Progress]:
        err = self._err or sys.stderr
        if not err.isatty() or find_spec("tqdm") is None:
            lines = Lines(total, unit, self.say)
            try:
                yield lines
            finally:
                lines.end()
            return
        from tqdm import tqdm

        self._bars += 1
        try:
            with tqdm(total=total, unit=f" {unit}", unit_scale=True, file=err, dynamic_ncols=True) as bar:
                yield bar
        finally:
            self._bars -= 1


def _write(stream: TextIO, text: str) -> None:
    stream.write(f"{for_terminal(text)}\n")
    stream.flush()
