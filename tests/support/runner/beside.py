"""Lanes that run in a thread while another lane uses the terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from example_project.environment.layout import LOCAL, make
from tests.support.runner.outcome import Outcome


class Beside:
    """Runs lanes one after another in a thread. Their programs end with this process, because they are its children.

    Each lane is called with the file that takes its output.
    """

    def __init__(self, lanes: Sequence[Callable[[Path], Outcome]], track: int = 1) -> None:
        self._lanes = lanes
        self._outputs = [
            make(LOCAL / "reports") / f"beside-{track}-{number}.log" for number in range(len(lanes))
        ]
        self._results: list[Outcome] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def outcomes(self) -> list[Outcome]:
        """Wait for the lanes to end, and print their output."""
        self._thread.join()
        for output in self._outputs:
            if output.exists():
                sys.stdout.write(output.read_text(errors="replace"))
                sys.stdout.flush()
        if self._error:
            raise self._error
        return self._results

    def _run(self) -> None:
        try:
            for lane, output in zip(self._lanes, self._outputs, strict=True):
                output.unlink(missing_ok=True)
                self._results.append(lane(output))
        except BaseException as error:
            self._error = error
