"""Jobs of a worker's threads, and their outcomes."""

from __future__ import annotations

import math
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from ..protocol.delivery import Delivery
from .outcomes import Verdict
from .registry import Handler

HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a handler's run for one delivery. ``overdue``: the handler ran too long, and may still run."""

    delivery: Delivery
    verdict: Verdict
    overdue: bool = False


@dataclass(eq=False)
class Job:
    """One message, or one batch, for one call of a handler.

    The thread that runs the job sets its fields, and the worker's loop reads them.

    - ``started``: by the monotonic clock.
    - ``judged``: verdicts on messages that the handler does not get.
    - ``cancels``: the job ends itself when its time is over.
    - ``coroutine``: the coroutine of an ``async`` handler.
    """

    handler: Handler
    deliveries: Sequence[Delivery]
    started: float = math.inf
    seconds: float = 0.0
    threads: list[int] = field(default_factory=list)
    judged: dict[Delivery, Verdict] = field(default_factory=dict)
    cancels: bool = False
    coroutine: Any = None
    outcomes: list[Outcome] = field(default_factory=list)
    ended: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begins(self) -> None:
        """Record the start. The thread that runs the job calls this."""
        self.threads.append(threading.get_ident())
        self.started = time.monotonic()

    def ends(self, outcomes: list[Outcome]) -> bool:
        """End the job with these outcomes. Return False if it has ended already.

        The handler's end and its time limit compete: the first call wins.
        """
        with self._lock:
            if self.ended:
                return False
            self.ended = True
        self.outcomes = outcomes
        self.seconds = max(time.monotonic() - self.started, 0.0)
        return True

    def __str__(self) -> str:
        first = self.deliveries[0]
        more = f" and {len(self.deliveries) - 1} more" if len(self.deliveries) > 1 else ""
        return (
            f"{self.handler.name}: topic {first.topic}, partition {first.hold.receipt.partition},"
            f" offset {first.offset}, id {first.id}{more}"
        )

    def stack(self) -> str:
        """Return the current traceback of the job's threads, and of the coroutine."""
        frames = sys._current_frames()
        parts = [_shown(frames[thread]) for thread in list(self.threads) if thread in frames]
        waiting, lines = self.coroutine, []
        while (frame := getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)) is not None:
            lines += traceback.format_list(traceback.extract_stack(frame, limit=1))
            waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
        if lines:
            parts.append("awaiting:\n" + "".join(lines))
        return "".join(parts) or "it is no longer running\n"


def _shown(frame: FrameType) -> str:
    """Return the stack as text, without the worker's frames above the handler."""
    found = traceback.extract_stack(frame)
    own = [place for place, entry in enumerate(found) if entry.filename.startswith(HERE)]
    return "".join(traceback.format_list(found[own[-1] + 1 if own else 0 :] or found[-1:]))
