"""What a thread of a worker has in hand, and where it stands."""

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

from ..service.delivery import Delivery
from .judging import Verdict
from .registry import Handler

HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Outcome:
    """What a handler's run came to. ``overdue``: it has run too long, and may run still."""

    delivery: Delivery
    verdict: Verdict
    overdue: bool = False


@dataclass(eq=False)
class Job:
    """One message for one call of a handler, or one batch.

    Filled in by the thread that runs it, and looked at by the worker's loop. ``started``: by the monotonic clock;
    ``judged``: messages of a batch that its handler is not given; ``cancels``: it ends itself when its time is over;
    ``coroutine``: what an ``async`` handler awaits.
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
        """In the thread that runs it."""
        self.threads.append(threading.get_ident())
        self.started = time.monotonic()

    def ends(self, outcomes: list[Outcome]) -> bool:
        """Whether this is how it ended: the first to say so decides, its handler or its time limit."""
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
            f"{self.handler.name}: topic {first.topic}, partition {first.hold.ticket.partition}, offset {first.offset},"
            f" id {first.id}{more}"
        )

    def stack(self) -> str:
        """Where it stands now, as a traceback is written: its threads, and what its coroutine awaits."""
        frames = sys._current_frames()
        parts = [_shown(frames[thread]) for thread in list(self.threads) if thread in frames]
        waiting, lines = self.coroutine, []
        while (frame := getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)) is not None:
            lines += traceback.format_list(traceback.extract_stack(frame, limit=1))
            waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
        if lines:
            parts.append("awaiting:\n" + "".join(lines))
        return "".join(parts) or "it stands nowhere any more\n"


def _shown(frame: FrameType) -> str:
    """A stack without the worker's own frames above the handler."""
    found = traceback.extract_stack(frame)
    own = [place for place, entry in enumerate(found) if entry.filename.startswith(HERE)]
    return "".join(traceback.format_list(found[own[-1] + 1 if own else 0 :] or found[-1:]))
