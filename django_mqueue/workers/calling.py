"""Running a handler on one message: what came of it, as a value."""

from __future__ import annotations

import inspect
import logging
import time
import traceback
from dataclasses import dataclass
from typing import Any

from asgiref.sync import async_to_sync

from .. import tracing
from ..exceptions import MQueueError, Postpone, Reject, Retry
from ..messages import Message
from ..policy.durations import to_ms
from ..policy.kinds import parsed
from ..service import telling
from ..service.delivery import Delivery
from . import connections
from .registry import Handler

logger = logging.getLogger("django_mqueue")

LEFT_OPEN = "the handler left a transaction open; what it wrote there was rolled back"
DEFAULT_DELAY = 1.0
"""Seconds, where a retry policy failed to give any."""


@dataclass(frozen=True)
class Outcome:
    """What a handler's run came to: ``verb`` is ack, nack, reject or postpone; ``delay`` in seconds."""

    delivery: Delivery
    verb: str
    seconds: float
    delay: float = 0.0
    error: str = ""


def call(handler: Handler, delivery: Delivery) -> Outcome:
    """Run the handler; never raises, whatever the handler does."""
    started = time.monotonic()
    try:
        connections.before_use()
        telling.delivered([delivery])
        verb, delay, error = verdict(handler, delivery)
    except BaseException:
        # An exception that cannot be told, a policy that exits: the attempt has failed all the same.
        logger.exception("%s: its outcome cannot be told", handler.name)
        verb, delay, error = "nack", DEFAULT_DELAY, "the handler failed, and its error cannot be shown"
    try:
        if not connections.after_use() and verb == "ack":
            # What it wrote is gone with the transaction: an ack would lose it.
            verb, delay, error = _failed(handler, delivery, MQueueError(LEFT_OPEN), LEFT_OPEN)
    except Exception:  # The next use finds out and reconnects.
        logger.debug("a connection could not be checked", exc_info=True)
    return Outcome(delivery, verb, time.monotonic() - started, delay, error)


def verdict(handler: Handler, delivery: Delivery) -> tuple[str, float, str]:
    """(verb, delay in seconds, error) of one run, within a span."""
    hold = delivery.hold
    with tracing.processing([delivery], hold.ticket.partition, hold.answering.context.me.name) as span:
        verb, delay, error = _verdict(handler, delivery, span)
        span.outcome(verb, delay, last=hold.failures + 1 >= handler.max_attempts)
    return verb, delay, error


def _verdict(handler: Handler, delivery: Delivery, span: tracing.Span) -> tuple[str, float, str]:
    try:
        span.watch(_run, handler, delivery)
    except Postpone as signal:
        return "postpone", _seconds(signal.delay), ""
    except Reject as signal:
        return "reject", 0.0, str(signal)
    except Retry as signal:
        if signal.delay is not None:
            return "nack", _seconds(signal.delay), str(signal)
        return _failed(handler, delivery, signal, str(signal))
    except BaseException as exception:
        if delivery.hold.answer == "ack":
            # Committed, with its effects; a hook that was to run after the commit has failed.
            logger.exception("%s: done, and failed after its commit", handler.name)
            return "ack", 0.0, ""
        return _failed(handler, delivery, exception, describe(exception))
    return "ack", 0.0, ""


def _run(handler: Handler, delivery: Delivery) -> None:
    if handler.filter is not None and not handler.filter(delivery):
        return
    message = delivery if handler.kinds is None else parsed(delivery, handler.kinds)
    if handler.atomic:
        with delivery.atomic():
            _invoke(handler, message)
    else:
        _invoke(handler, message)


def _invoke(handler: Handler, message: Message) -> None:
    result = handler.function(message)
    if inspect.isawaitable(result):
        # Not asyncio.run: so its database work happens in this thread, on the connections that are looked after.
        async_to_sync(_await)(result)


async def _await(result: Any) -> None:
    await result


def describe(exception: BaseException) -> str:
    """An exception as it is kept with the message: its own line first, then the traceback."""
    first = "".join(traceback.format_exception_only(exception)).strip()
    return f"{first}\n\n{''.join(traceback.format_exception(exception))}"


def _failed(
    handler: Handler, delivery: Delivery, exception: BaseException, error: str
) -> tuple[str, float, str]:
    """The verdict on an attempt that failed, by the retry policy."""
    wait = _backoff(handler, delivery, exception)
    return ("reject", 0.0, error) if wait is None else ("nack", wait, error)


def _backoff(handler: Handler, delivery: Delivery, exception: BaseException) -> float | None:
    """Seconds, or None for no more attempts."""
    try:
        wait = handler.retry(delivery.attempt, exception)
        return None if wait is None else _seconds(wait)
    except Exception:
        logger.exception("%s: the retry policy failed; waiting %s s", handler.name, DEFAULT_DELAY)
        return DEFAULT_DELAY


def _seconds(delay: Any) -> float:
    try:
        return to_ms("delay", delay) / 1000
    except (TypeError, ValueError):
        logger.exception("a handler asked for an impossible delay (%r); waiting %s s", delay, DEFAULT_DELAY)
        return DEFAULT_DELAY
