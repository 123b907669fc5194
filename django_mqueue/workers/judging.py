"""What becomes of a message whose handler raised."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..drawing.printing import on_a_line
from ..exceptions import Postpone, Reject, Retry
from ..policy.backoff import ExponentialBackoff
from ..policy.durations import to_ms
from ..service.delivery import Delivery
from ..store import session
from .registry import Handler

logger = logging.getLogger("django_mqueue")

DEFAULT_DELAY = 1.0
"""Seconds, where a retry policy failed to give any."""
UNCOUNTED_MOST = 10
"""Attempts of one message that a worker does not count because the server ended their transaction."""
UNCOUNTED_WAIT = ExponentialBackoff(first=0.05, factor=2, max=10, jitter=0.5)
"""Seconds until such an attempt is repeated. The jitter keeps handlers that met once from meeting again."""


class Verdict(NamedTuple):
    """``verb`` is ack, nack, reject or postpone; ``delay`` in seconds. ``unread``: the handler did not want it."""

    verb: str
    delay: float = 0.0
    error: str = ""
    unread: bool = False


def judged(
    handler: Handler, delivery: Delivery, exception: BaseException, error: str | None = None
) -> Verdict:
    """The verdict on a delivery by what its handler raised. ``error`` is kept with it instead of the traceback."""
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


def all_judged(
    handler: Handler, deliveries: Iterable[Delivery], exception: BaseException, error: str | None = None
) -> dict[Delivery, Verdict]:
    """The verdict on each. The retry policy is asked once for each attempt's number: they come again together."""
    deliveries = list(deliveries)
    if deliveries and _undone(handler, exception) and (again := _uncounted(handler, deliveries, exception)):
        return dict.fromkeys(deliveries, again)
    by_attempt: dict[int, Verdict] = {}
    found: dict[Delivery, Verdict] = {}
    for delivery in deliveries:
        if delivery.attempt not in by_attempt:
            by_attempt[delivery.attempt] = judged(handler, delivery, exception, error)
        found[delivery] = by_attempt[delivery.attempt]
    return found


def _undone(handler: Handler, exception: BaseException) -> bool:
    """Return whether the server's doing undid the handler's transaction: a closed connection, a deadlock, a lock wait.

    After a lock wait timeout the server has undone one statement alone; the exception has undone the others.
    """
    return handler.atomic and (session.is_lost(exception) or session.is_retriable(exception))


def _uncounted(handler: Handler, deliveries: list[Delivery], exception: BaseException) -> Verdict | None:
    """Return the verdict that delivers them again without counting an attempt; None if they had too many of these."""
    partition = deliveries[0].hold.answering.context.partitions.get(deliveries[0].hold.ticket.partition)
    if partition is None:  # Its lease is lost: no answer to these is taken.
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
    """An exception as it is kept with the message: its own line first, then the traceback."""
    first = "".join(traceback.format_exception_only(exception)).strip()
    return f"{first}\n\n{''.join(traceback.format_exception(exception))}"


def _backoff(handler: Handler, attempt: int, exception: BaseException) -> float | None:
    """Seconds, or None for no more attempts."""
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
