"""The executor: it runs a handler on a message or a batch, and returns the verdicts."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from contextlib import nullcontext
from typing import Any

from asgiref.sync import async_to_sync

from .. import tracing
from ..exceptions import BatchFailure, MQueueError, StaleDelivery, TimeLimitExceeded
from ..messages import Message
from ..protocol import events
from ..protocol.acknowledging.transactional import atomically
from ..protocol.delivery import Delivery
from ..store.connection import errors
from . import connection_cleanup
from .handler_calls import DEFAULT_DELAY, HandlerCall, Outcome, Verdict, verdicts_on
from .kinds import parsed
from .registry import Handler

logger = logging.getLogger("django_mqueue")

TRANSACTION_LEFT_OPEN = "the handler left a transaction open; its writes were rolled back"
ACK, UNREAD = Verdict("ack"), Verdict("ack", unread=True)
AGAIN = Verdict("postpone")
UNKNOWN_ERROR = Verdict("nack", DEFAULT_DELAY, "the handler failed, and its error cannot be shown")


def execute(call: HandlerCall) -> list[Outcome]:
    """Run the handler, and return the outcomes. Never raises, even if the handler or the retry policy does."""
    handler = call.handler
    call.record_start()
    try:
        events.delivered(call.deliveries)
        found = verdicts(call)
    except BaseException:
        # The exception cannot be formatted, or the retry policy has raised ``SystemExit``: the attempt has failed.
        logger.exception("handler failed, and its error cannot be shown: %s", handler.name)
        connection_cleanup.after_use()
        found = dict.fromkeys(call.deliveries, UNKNOWN_ERROR)
    return [Outcome(delivery, found[delivery]) for delivery in call.deliveries]


def verdicts(call: HandlerCall, *, keeps_transaction: bool = False) -> dict[Delivery, Verdict]:
    """Run the handler inside a span, and return the verdict on each delivery.

    End a transaction that the handler has left open, unless ``keeps_transaction``: it is the caller's.
    """
    status = call.deliveries[0].status
    with tracing.processing(
        call.deliveries, status.receipt.partition, status.acknowledger.state.holder.name
    ) as span:
        given = _given(call, span)
        found = call.verdicts_without_call | (_run(call, given, span) if given else {})
        if not keeps_transaction and not connection_cleanup.after_use():
            found |= _left_open(call, found, span)
        if span.exists:
            _describe(span, call, found)
    return found


def _left_open(
    call: HandlerCall, found: dict[Delivery, Verdict], span: tracing.Span
) -> dict[Delivery, Verdict]:
    """Return the verdicts on messages whose handler returned, but left its transaction open."""
    # The handler's writes are rolled back: an ack would lose them. If it has acked by itself, that ack is committed.
    lost = [
        delivery
        for delivery, verdict in found.items()
        if verdict.verb == "ack" and not verdict.unread and delivery.status.settled_by != "ack"
    ]
    if not lost:
        return {}
    error = MQueueError(TRANSACTION_LEFT_OPEN)
    span.failed(error)
    call.record_error(error)
    return verdicts_on(call.handler, lost, error, TRANSACTION_LEFT_OPEN)


def _given(call: HandlerCall, span: tracing.Span) -> dict[Delivery, Message]:
    """Return the messages for the handler. ``call.verdicts_without_call`` gets the verdicts on the others."""
    handler = call.handler
    given: dict[Delivery, Message] = {}
    for delivery in call.deliveries:
        try:
            if handler.filter is not None and not handler.filter(delivery):
                call.verdicts_without_call[delivery] = UNREAD
                delivery.status.skipped = True
            else:
                given[delivery] = delivery if handler.kinds is None else parsed(delivery, handler.kinds)
        except BaseException as exception:
            if not handler.batch:
                span.failed(exception)
                call.record_error(exception)
            call.verdicts_without_call |= verdicts_on(handler, [delivery], exception)
    return given


def _run(call: HandlerCall, given: dict[Delivery, Message], span: tracing.Span) -> dict[Delivery, Verdict]:
    handler, deliveries = call.handler, list(given)
    argument: Any = list(given.values()) if handler.batch else given[deliveries[0]]
    try:
        with atomically(deliveries) if handler.is_atomic(deliveries[0]) else nullcontext():
            result = handler.function(argument)
            if result is not None and inspect.isawaitable(result):
                # With asyncio.run, database work would use other threads, whose connections are not checked.
                async_to_sync(_await)(call, result)
    except BaseException as exception:
        span.failed(exception)
        call.record_error(exception)
        causes = exception, exception.__cause__, exception.__context__
        if any(one is not None and errors.is_read_only(one) for one in causes):
            connection_cleanup.close_after_use()
        if all(delivery.status.settled_by == "ack" for delivery in deliveries):
            # The ack is committed: by the handler itself, or before an ``on_commit`` hook failed.
            logger.exception("handler failed after its commit: %s; its messages are done", handler.name)
            return dict.fromkeys(deliveries, ACK)
        if handler.batch and isinstance(exception, BatchFailure):
            return _failed_in_part(handler, given, exception)
        if handler.batch and handler.atomic and isinstance(exception, StaleDelivery):
            return _lost_in_part(handler, deliveries, exception)
        return verdicts_on(handler, deliveries, exception)
    return dict.fromkeys(deliveries, ACK)


def _describe(span: tracing.Span, call: HandlerCall, found: dict[Delivery, Verdict]) -> None:
    """Set the span's attributes that say how the call ended."""
    verb, delay, *_ = found[call.deliveries[0]]
    if call.handler.batch:
        span.set(batch__message_count=len(call.deliveries))
    if any(delivery.status.overdue for delivery in call.deliveries):
        span.set(django_mqueue__outcome="overdue")  # Its verdict was given before the handler ended.
    elif all(verdict.verb == verb for verdict in found.values()):
        last = all(delivery.status.failures + 1 >= call.handler.max_attempts for delivery in found)
        span.outcome(verb, delay, last=last)


def _failed_in_part(
    handler: Handler, given: dict[Delivery, Message], failure: BatchFailure
) -> dict[Delivery, Verdict]:
    """Return the verdicts after a ``BatchFailure``. The messages that it does not name are acknowledged.

    If the handler is atomic, they were rolled back, and are delivered again instead.
    """
    of_status = {id(delivery.status): delivery for delivery in given}
    found = dict.fromkeys(given, AGAIN if handler.atomic else ACK)
    alike: dict[int, tuple[BaseException, list[Delivery]]] = {}
    for message, exception in failure.failures.items():
        delivery = of_status.get(id(getattr(message, "status", None)))
        if delivery is None:
            unknown_message = ValueError(
                f"BatchFailure names {message!r}, which is not a message of this batch. Its keys must be messages of"
                " the list that the handler received; the whole batch has failed instead"
            )
            unknown_message.__cause__ = failure
            return verdicts_on(handler, given, unknown_message)
        alike.setdefault(id(exception), (exception, []))[1].append(delivery)
    for exception, deliveries in alike.values():
        found |= verdicts_on(handler, deliveries, exception)
    return found


def _lost_in_part(
    handler: Handler, deliveries: list[Delivery], stale: StaleDelivery
) -> dict[Delivery, Verdict]:
    """Return the verdicts on an atomic batch that was rolled back, because some of its deliveries are stale."""
    gone = {id(delivery) for delivery in stale.stale}
    found = verdicts_on(handler, [d for d in deliveries if id(d) in gone], stale)
    if not found:  # The stale deliveries are not from this batch.
        return verdicts_on(handler, deliveries, stale)
    return {**dict.fromkeys(deliveries, AGAIN), **found}


async def _await(call: HandlerCall, result: Any) -> None:
    """Await the coroutine of an ``async`` handler. Cancel it after ``max_runtime``, and raise ``TimeLimitExceeded``."""
    limit = call.max_runtime
    call.coroutine = result
    if (thread := threading.get_ident()) not in call.threads:
        call.threads.append(thread)
    if limit is None:
        await result
        return
    call.cancels = True
    try:
        async with asyncio.timeout(limit) as time_limit:
            await result
    except BaseException as error:
        if time_limit.expired():
            raise TimeLimitExceeded(limit) from error
        raise
    if time_limit.expired():
        raise TimeLimitExceeded(limit)
