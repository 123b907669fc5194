"""Events for Django signals: made after the commit, queued while locks are held, then sent.

The thread that queued an event sends it; in a worker process, a separate thread does. A signal without receivers makes
no event. ``signals`` defines the signals.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from django.db import DatabaseError, connections, transaction

from .. import conf, instruments, signals
from ..instruments import Instrument
from ..messages import Published
from ..models import Message as Row
from ..policy import names
from ..policy.durations import Due, moment
from ..policy.requests import visible
from ..signals import EventSink, TopicSignal
from ..store.connection import session
from ..store.delivery_state import Receipt, clip
from ..store.log import NewRow
from .delivery import Consumer, Delivery

logger = logging.getLogger("django_mqueue")


@dataclass(frozen=True)
class Settlement:
    """The settlement of a delivery. ``again_in``: milliseconds until the message is delivered again; None: never.

    ``failures``: the failed attempts of a dead letter.
    """

    error: str | None = None
    again_in: int | None = None
    failures: int = 0


def send_after_commit(using: str, events: Sequence[Callable[[], None]]) -> None:
    """Send events after the commit: now, or when the caller's transaction commits.

    In a transaction that was begun by turning autocommit off, never send them: Django runs no hook at its commit.
    """

    def send() -> None:
        for event in events:
            event()

    if connections[using].in_atomic_block and events:
        transaction.on_commit(send, using=using, robust=True)
    elif not session.in_transaction(using):
        send()


def published(
    using: str, topic: str, rows: Sequence[NewRow], dues: Sequence[Due | None], results: Sequence[Published]
) -> None:
    """Send ``published`` after the commit of stored messages. ``dues``: a due time, or None, for each message."""
    stored = [
        (row, due, result)
        for row, due, result in zip(rows, dues, results, strict=True)
        if result.created or result.replaced
    ]
    events: list[Callable[[], None]] = []
    if stored and instruments.is_recording():
        events.append(partial(instruments.record, instruments.PUBLISHED, len(stored), topic))
    if signals.published.has_listeners(topic):
        events += [  # Without the payloads: many may accumulate until the commit.
            partial(_published, using, row.content.metadata, row.group or None, due is not None, result)
            for row, due, result in stored
        ]
    send_after_commit(using, events)


def _published(using: str, text: str, group: str | None, is_scheduled: bool, result: Published) -> None:
    metadata = json.loads(text)
    signals.published.send_logged(
        result.topic, using=using, offset=result.offset, id=result.id, key=result.key, kind=metadata["kind"],
        headers=MappingProxyType(visible(metadata["headers"])), group=group, scheduled=is_scheduled,
        replaced=result.replaced,
    )  # fmt: skip


def redriven(using: str, topic: str, found: Iterable[dict[str, Any]]) -> None:
    """Send ``redriven`` after the commit for redriven dead letters (rows of ``dead_letters.read``)."""
    events = [
        partial(
            signals.redriven.send_logged, topic, using=using, group=row["failed_group"], id=row["original_id"],
            key=names.key_of(row["partition"]), letter_offset=int(row["offset"]),
        )
        for row in found
        if signals.redriven.has_listeners(topic)
    ]  # fmt: skip
    send_after_commit(using, events)


def dropped(sink: EventSink, topic: str, **details: Any) -> None:
    """Queue ``dropped`` for a scheduled message that promotion dropped. ``details``: using, id, key, group, reason."""
    if signals.dropped.has_listeners(topic):
        sink.put(partial(signals.dropped.send_logged, topic, **details))


def delivered(deliveries: Sequence[Delivery]) -> None:
    """Queue ``delivered`` for deliveries that now go to a handler, or to the caller of ``poll``."""
    if deliveries:
        _count(deliveries[0].status.acknowledger.state, instruments.DELIVERED, len(deliveries))
    for delivery in deliveries:
        _put_delivery(delivery.status.acknowledger.state, signals.delivered, delivery)


def ended(state: Consumer, deliveries: Sequence[Delivery], end: Settlement) -> None:
    """Queue the signals for deliveries whose outcome is committed, then send all that this thread has queued."""
    _count_ended(state, deliveries, end)
    for delivery in deliveries:
        if end.error is None and end.again_in is None:
            _put_delivery(state, signals.acked, delivery)
            continue
        again = {
            "retry_in": None if end.again_in is None else end.again_in / 1000,
            "retry_at": None if end.again_in is None else moment(state.clock.now() + end.again_in),
        }
        if end.error is None:
            _put_delivery(state, signals.postponed, delivery, **again)
            continue
        _put_delivery(state, signals.failed, delivery, **again, error=clip(end.error))
        if end.again_in is None:
            _put_dead_lettered(
                state, delivery.offset, end.failures, end.error, id=delivery.id, key=delivery.key
            )
    state.events.send()


def dead_lettered(state: Consumer, receipt: Receipt, failures: int, error: str) -> None:
    """Queue ``dead_lettered`` for a message that is in no handler: its worker died, or it cannot be decoded."""
    _count(state, instruments.DEAD_LETTERED, 1)
    if not signals.dead_lettered.has_listeners(state.topic):
        return
    message_id: str | None = None
    with suppress(DatabaseError):  # The next statement fails in the same way.
        row = Row.objects.using(state.using).filter(offset=receipt.offset).first()
        if row is not None:
            message_id = row.message_id if row.original_id is None else row.original_id
    key = names.key_of(receipt.partition)
    _put_dead_lettered(state, receipt.offset, failures, error, id=message_id, key=key)


def leases_won(state: Consumer, partitions: Iterable[str]) -> None:
    if won := tuple(sorted(partitions)):
        _count(state, instruments.LEASES_WON, len(won))
        _put(state, signals.lease_won, partitions=won)


def leases_lost(state: Consumer, partitions: Iterable[str], reason: str = "lost") -> None:
    if lost := tuple(sorted(partitions)):
        _count(state, instruments.LEASES_LOST, len(lost), reason)
        _put(state, signals.lease_lost, partitions=lost, reason=reason)
        if reason == "lost":
            logger.warning(
                "partitions lost: subscriber %s, group %s, topic %s, %s partitions; another worker may have them, or"
                " the group was reset",
                state.holder.name, state.group, state.topic, len(lost),
                extra=state.log_fields("lease_lost", partitions=len(lost)),
            )  # fmt: skip


def _count(state: Consumer, instrument: Instrument, count: int, *labels: str) -> None:
    if count:
        instruments.record(instrument, count, state.topic, state.group, *labels)


def _count_ended(state: Consumer, deliveries: Sequence[Delivery], end: Settlement) -> None:
    """Count deliveries by their outcome. A message that the handler's filter skipped is not finished by the handler."""
    count = len(deliveries)
    if end.error is None and end.again_in is None:
        skipped = sum(delivery.status.skipped for delivery in deliveries)
        _count(state, instruments.SKIPPED, skipped)
        _count(state, instruments.FINISHED, count - skipped)
    elif end.error is None:
        _count(state, instruments.POSTPONED, count)
    else:
        _count(state, instruments.FAILED, count)
        final = end.again_in is None
        _count(state, instruments.DEAD_LETTERED if final else instruments.RETRIED, count)


def _put_delivery(state: Consumer, signal: TopicSignal, delivery: Delivery, **more: Any) -> None:
    """Queue a signal of a delivery without its payload: thousands of events may wait for a slow receiver."""
    if signal.has_listeners(state.topic):
        _put(
            state, signal, offset=delivery.offset, id=delivery.id, key=delivery.key, kind=delivery.kind,
            headers=MappingProxyType(delivery.headers), attempt=delivery.attempt, published_at=delivery.published_at,
            **more,
        )  # fmt: skip


def _put_dead_lettered(state: Consumer, offset: int, failures: int, error: str, **more: Any) -> None:
    topic = conf.dead_letter_topic(state.topic)
    _put(
        state, signals.dead_lettered, offset=offset, failure_count=failures, error=clip(error),
        dead_letter_topic=topic, **more,
    )  # fmt: skip


def _put(state: Consumer, signal: TopicSignal, **arguments: Any) -> None:
    if signal.has_listeners(state.topic):
        who = {"using": state.using, "group": state.group, "worker": state.holder.name}
        state.events.put(partial(signal.send_logged, state.topic, **who, **arguments))
