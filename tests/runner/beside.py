"""A lane that runs while another one has the terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

from example_project.environment.layout import LOCAL, make
from tests.runner.outcome import Outcome


class Beside:
    """Begins at once. Its program ends with this process: it is a child of a thread of it."""

    def __init__(self, lane: Callable[[Path], Outcome]) -> None:
        self._output = make(LOCAL / "reports") / "beside.log"
        self._result: list[Outcome] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(lane,), daemon=True)
        self._thread.start()

    def outcome(self) -> Outcome:
        """Wait for its end, and show what it has to say."""
        self._thread.join()
        if self._output.exists():
            sys.stdout.write(self._output.read_text(errors="replace"))
            sys.stdout.flush()
        if self._error:
            raise self._error
        return self._result[0]

    def _run(self, lane: Callable[[Path], Outcome]) -> None:
        try:
            self._result.append(lane(self._output))
        except BaseException as error:
            self._error = error
