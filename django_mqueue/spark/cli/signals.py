"""SIGTERM and SIGINT: the first asks for an end between two steps, the second ends at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NUMBERS = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """``first()`` is called once, in the main thread between two of its instructions; ``second(number)`` after that."""

    def __init__(self, first: Callable[[], None], second: Callable[[int], None]) -> None:
        self._first, self._second = first, second
        self.number: int | None = None
        """Of the first one."""

    @contextmanager
    def heard(self) -> Iterator[Signals]:
        """In this block; then all is as it was. Only a main thread hears signals: nothing is done in another one."""
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
        """Also after Spark has started, which takes SIGINT for itself (pyspark/core/context.py)."""
        if threading.current_thread() is threading.main_thread():
            for number in NUMBERS:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            self._second(number)
        self.number = number
        self._first()
