"""Verdicts: how to settle a message after its handler raised an exception."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..drawing.printing import on_a_line
from ..exceptions import Postpone, Reject, Retry
from ..policy.backoff import ExponentialBackoff
from ..policy.durations import to_ms
from ..protocol.delivery import Delivery
from ..store.connection import errors
from .registry import Handler

logger = logging.getLogger("django_mqueue")

DEFAULT_DELAY = 1.0
"""Seconds to wait if a retry policy fails or gives an invalid delay."""
UNCOUNTED_MOST = 10
"""Maximum number of attempts of one message that are not counted because the server ended their transaction."""
UNCOUNTED_WAIT = ExponentialBackoff(first=0.05, factor=2, max=10, jitter=0.5)
"""Seconds until such an attempt is repeated. The jitter keeps handlers that blocked each other apart."""


class Verdict(NamedTuple):
    """The way to settle a delivery: ``verb`` is ack, nack, reject or postpone; ``delay`` is in seconds.

    ``unread``: the handler's filter did not match.
    """

    verb: str
    delay: float = 0.0
    error: str = ""
    unread: bool = False


def verdict_on(
    handler: Handler, delivery: Delivery, exception: BaseException, error: str | None = None
) -> Verdict:
    """Return the verdict on a delivery for the exception of its handler.

    ``error`` is stored instead of the traceback.
    """
    if isinstance(exception, Postpone):
        return Verdict("postpone", _seconds(exception.delay))
    if isinstance(exception, Reject):
        return Verdict("reject", 0.0, str(exception))
    if isinstance(exception, Retry):
        if exception.delay is not None:
            return Verdict("nack", _seconds(exception.delay), str(exception))
        error = str(exception)
    wait = _backoff(handler, delivery.attempt, exception)
    text = describe(exception) if error is None else error
    return Verdict("reject", 0.0, text) if wait is None else Verdict("nack", wait, text)


def verdicts_on(
    handler: Handler, deliveries: Iterable[Delivery], exception: BaseException, error: str | None = None
) -> dict[Delivery, Verdict]:
    """Return the verdict on each delivery.

    The retry policy is called once for each attempt's number, so that these messages are retried together. An attempt
    is not counted if the server ended the transaction of an atomic handler.
    """
    deliveries = list(deliveries)
    if deliveries and _undone(handler, exception) and (again := _uncounted(handler, deliveries, exception)):
        return dict.fromkeys(deliveries, again)
    by_attempt: dict[int, Verdict] = {}
    found: dict[Delivery, Verdict] = {}
    for delivery in deliveries:
        if delivery.attempt not in by_attempt:
            by_attempt[delivery.attempt] = verdict_on(handler, delivery, exception, error)
        found[delivery] = by_attempt[delivery.attempt]
    return found


def _undone(handler: Handler, exception: BaseException) -> bool:
    """Return whether the server ended the handler's transaction: a closed connection, a deadlock, a lock wait.

    After a lock wait timeout, the server has rolled back only one statement. The exception has rolled back the others.
    """
    return handler.atomic and (errors.is_lost(exception) or errors.is_retriable(exception))


def _uncounted(handler: Handler, deliveries: list[Delivery], exception: BaseException) -> Verdict | None:
    """Return a verdict that counts no attempt; None if the messages had too many such attempts."""
    partition = deliveries[0].hold.acknowledger.context.partitions.get(deliveries[0].hold.receipt.partition)
    if partition is None:  # The lease is lost: these deliveries are stale.
        return None
    times = 1 + max(partition.uncounted.get(delivery.offset, 0) for delivery in deliveries)
    if times > UNCOUNTED_MOST:
        return None
    partition.uncounted |= dict.fromkeys((delivery.offset for delivery in deliveries), times)
    wait = UNCOUNTED_WAIT(times)
    logger.warning(
        "%s: the server ended the handler's transaction, and the attempt is not counted (%s of at most %s):"
        " topic %s, partition %s, offset %s, %s messages; delivered again in %.3g s: %s",
        handler.name, times, UNCOUNTED_MOST, deliveries[0].topic, partition.name, deliveries[0].offset,
        len(deliveries), wait, on_a_line(str(exception)),
    )  # fmt: skip
    return Verdict("postpone", wait)


def describe(exception: BaseException) -> str:
    """Return the exception as it is stored with the message: its own line first, then the traceback."""
    first = "".join(traceback.format_exception_only(exception)).strip()
    return f"{first}\n\n{''.join(traceback.format_exception(exception))}"


def _backoff(handler: Handler, attempt: int, exception: BaseException) -> float | None:
    """Return the seconds to wait, or None for no retry."""
    try:
        wait = handler.retry(attempt, exception)
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
