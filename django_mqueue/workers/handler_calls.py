"""Calls of handlers by a worker's threads, and their outcomes. An outcome's verdict settles one message."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from .. import tracing
from ..exceptions import Postpone, Reject, Retry
from ..policy.backoff import ExponentialBackoff, Policy
from ..policy.durations import to_ms
from ..printing import on_a_line
from ..protocol.delivery import Delivery, DeliveryAcknowledger
from ..store.connection import errors
from .registry import Handler

logger = logging.getLogger("django_mqueue")

HERE = str(Path(__file__).parent)
DEFAULT_DELAY = 1.0
"""Seconds to wait if a retry policy fails or gives an invalid delay."""
UNCOUNTED_MOST = 10
"""Maximum number of attempts of one message that are not counted because the server ended their transaction."""
UNCOUNTED_WAIT = ExponentialBackoff(first=0.05, factor=2, max=10, jitter=0.5)
"""Seconds until such an attempt is repeated. The jitter separates handlers that have blocked each other."""


class Exhausted(Reject):
    """Earlier runs used all attempts of the message. This run is no attempt."""


class Verdict(NamedTuple):
    """A verdict on a delivery: ack, nack, reject or postpone.

    ``unread``: the handler's filter did not match. ``counted``: False if a rejected run is not a failed attempt.
    """

    verb: str
    delay: float = 0.0
    error: str = ""
    unread: bool = False
    counted: bool = True

    def settle(self, delivery: Delivery) -> None:
        if self.verb == "ack":
            delivery.ack()
        elif self.verb == "nack":
            delivery.nack(delay=self.delay, error=self.error)
        elif self.verb == "reject":
            delivery.status.acknowledger.reject(delivery, self.error, counted=self.counted)
        else:
            delivery.postpone(self.delay)


class Outcome(NamedTuple):
    """The outcome of a handler's run for one delivery. ``overdue``: the handler ran too long, and may still run."""

    delivery: Delivery
    verdict: Verdict
    overdue: bool = False


@dataclass(eq=False)
class HandlerCall:
    """One call of a handler, with one message or one batch.

    The thread that runs the call sets its fields, and the worker's loop reads them.

    - ``started``: monotonic seconds; infinite before the start.
    - ``verdicts_without_call``: verdicts on messages that the handler does not get.
    - ``cancels``: the call cancels its handler after ``max_runtime``.
    - ``coroutine``: the coroutine of an ``async`` handler.
    - ``error``: the name of the exception's class if the handler raised one.
    """

    handler: Handler
    deliveries: Sequence[Delivery]
    started: float = math.inf
    seconds: float = 0.0
    threads: list[int] = field(default_factory=list)
    verdicts_without_call: dict[Delivery, Verdict] = field(default_factory=dict)
    cancels: bool = False
    coroutine: Any = None
    error: str = ""
    outcomes: list[Outcome] = field(default_factory=list)
    ended: bool = False

    @property
    def acknowledger(self) -> DeliveryAcknowledger:
        return self.deliveries[0].status.acknowledger

    @cached_property
    def max_runtime(self) -> float | None:
        """Return the time limit in seconds; None: no limit."""
        return self.handler.limits(self.deliveries[0]).max_runtime

    def record_start(self) -> None:
        """Set ``atomic`` of the deliveries, and record the start. The thread that runs the handler calls this."""
        self.threads.append(threading.get_ident())
        # Computed in this thread, because it may import the module of a job.
        _ = self.max_runtime
        for delivery in self.deliveries:
            delivery.status.atomic = self.handler.is_atomic(delivery)
        self.started = time.monotonic()

    def finish(self, outcomes: list[Outcome]) -> bool:
        """End the call with these outcomes. Return False if its handler or its time limit has ended it already.

        The pool's lock must be held.
        """
        if self.ended:
            return False
        self.ended = True
        self.outcomes = outcomes
        self.seconds = max(time.monotonic() - self.started, 0.0)
        return True

    def record_error(self, exception: BaseException) -> None:
        """Record the exception that the handler raised, unless it postpones the message."""
        if not isinstance(exception, Postpone):
            self.error = tracing.name_of(type(exception))

    def __str__(self) -> str:
        first = self.deliveries[0]
        more = f" and {len(self.deliveries) - 1} more" if len(self.deliveries) > 1 else ""
        return (
            f"{self.handler.name}: topic {first.topic}, partition {first.status.receipt.partition},"
            f" offset {first.offset}, id {first.id}{more}"
        )

    def stack(self) -> str:
        """Return the current traceback of the call's threads, and of the coroutine."""
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
    """Return the stack as text, from the handler's first frame on."""
    found = traceback.extract_stack(frame)
    own = [place for place, entry in enumerate(found) if entry.filename.startswith(HERE)]
    return "".join(traceback.format_list(found[own[-1] + 1 if own else 0 :] or found[-1:]))


def _verdict_on(handler: Handler, delivery: Delivery, exception: BaseException, error: str | None) -> Verdict:
    if isinstance(exception, Postpone):
        return Verdict("postpone", _seconds(handler.name, exception.delay))
    if isinstance(exception, Reject):
        return Verdict("reject", 0.0, str(exception), counted=not isinstance(exception, Exhausted))
    limits, delay = handler.limits(delivery), None
    if isinstance(exception, Retry):
        error, delay = str(exception), exception.delay
    if delay is None:
        wait = _backoff(handler.name, limits.retry, delivery.attempt, exception)
    else:
        wait = _seconds(handler.name, delay)
    text = describe(exception) if error is None else error
    is_last = (
        limits.max_attempts < handler.max_attempts and delivery.status.failures + 1 >= limits.max_attempts
    )
    return Verdict("reject", 0.0, text) if wait is None or is_last else Verdict("nack", wait, text)


def verdicts_on(
    handler: Handler, deliveries: Iterable[Delivery], exception: BaseException, error: str | None = None
) -> dict[Delivery, Verdict]:
    """Return the verdict on each delivery after an exception. ``error``: a text to store instead of the traceback.

    The retry policy is called once for each attempt number, so messages with the same number are retried together. If
    the server ended the transaction of an atomic handler, the attempt is not counted.
    """
    deliveries = list(deliveries)
    undone = deliveries and handler.is_atomic(deliveries[0]) and _ended_by_server(exception)
    if undone and (again := _uncounted(handler, deliveries, exception)):
        return dict.fromkeys(deliveries, again)
    first_of = {delivery.attempt: delivery for delivery in reversed(deliveries)}
    verdicts = {attempt: _verdict_on(handler, one, exception, error) for attempt, one in first_of.items()}
    return {delivery: verdicts[delivery.attempt] for delivery in deliveries}


def _ended_by_server(exception: BaseException) -> bool:
    """Return whether a lost connection, a read-only server, a deadlock or a lock wait timeout ended the transaction."""
    return errors.is_lost(exception) or errors.is_retriable(exception) or errors.is_read_only(exception)


def _uncounted(handler: Handler, deliveries: list[Delivery], exception: BaseException) -> Verdict | None:
    """Return a verdict that counts no attempt; None if that happened too often for these messages."""
    partition = deliveries[0].status.acknowledger.state.partitions.get(deliveries[0].status.receipt.partition)
    if partition is None:  # The lease is lost: these deliveries are stale.
        return None
    times = 1 + max(partition.uncounted.get(delivery.offset, 0) for delivery in deliveries)
    if times > UNCOUNTED_MOST:
        return None
    partition.uncounted |= dict.fromkeys((delivery.offset for delivery in deliveries), times)
    wait = UNCOUNTED_WAIT(times)
    logger.warning(
        "attempt not counted: %s: the server ended the handler's transaction (%s of at most %s):"
        " topic %s, partition %s, offset %s, %s messages; delivered again in %.3g s: %s",
        handler.name, times, UNCOUNTED_MOST, deliveries[0].topic, partition.name, deliveries[0].offset,
        len(deliveries), wait, on_a_line(str(exception)),
    )  # fmt: skip
    return Verdict("postpone", wait)


def describe(exception: BaseException) -> str:
    """Return the exception as it is stored with the message: its own line first, then the traceback."""
    first = "".join(traceback.format_exception_only(exception)).strip()
    return f"{first}\n\n{''.join(traceback.format_exception(exception))}"


def _backoff(name: str, retry: Policy, attempt: int, exception: BaseException) -> float | None:
    """Return the seconds to wait, or None for no retry. ``name``: the handler's."""
    try:
        wait = retry(attempt, exception)
        return None if wait is None else _seconds(name, wait)
    except Exception:
        logger.exception("retry policy failed: %s; waiting %s s", name, DEFAULT_DELAY)
        return DEFAULT_DELAY


def _seconds(name: str, delay: Any) -> float:
    try:
        return to_ms("delay", delay) / 1000
    except (TypeError, ValueError):
        logger.exception(
            "invalid delay of a handler or its retry policy: %s: %r; waiting %s s", name, delay, DEFAULT_DELAY
        )
        return DEFAULT_DELAY
