"""SIGTERM and SIGINT: the first signal asks the run to stop after its current step, the second ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NUMBERS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Handles signals. Call ``first()`` for the first signal, and ``second(number)`` for each later signal.

    Both run in the main thread, between two of its instructions.
    """

    def __init__(self, first: Callable[[], None], second: Callable[[int], None]) -> None:
        self._first, self._second = first, second
        self.number: int | None = None
        """The number of the first signal."""

    @contextmanager
    def heard(self) -> Iterator[Signals]:
        """Handle signals in this block, and restore the old handlers at the end.

        Python delivers signals only to the main thread, so this does nothing in any other thread.
        """
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.getsignal(number) for number in NUMBERS}
        self.listen()
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        """Install the handlers. Call it again after Spark has started: Spark replaces the handler of SIGINT."""
        if threading.current_thread() is threading.main_thread():
            for number in NUMBERS:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            self._second(number)
        self.number = number
        self._first()
