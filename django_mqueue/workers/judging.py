"""What becomes of a message whose handler raised."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..exceptions import Postpone, Reject, Retry
from ..policy.durations import to_ms
from ..service.delivery import Delivery
from .registry import Handler

logger = logging.getLogger("django_mqueue")

DEFAULT_DELAY = 1.0
"""Seconds, where a retry policy failed to give any."""


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
    by_attempt: dict[int, Verdict] = {}
    found: dict[Delivery, Verdict] = {}
    for delivery in deliveries:
        if delivery.attempt not in by_attempt:
            by_attempt[delivery.attempt] = judged(handler, delivery, exception, error)
        found[delivery] = by_attempt[delivery.attempt]
    return found


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
