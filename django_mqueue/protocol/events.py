"""Events for Django signals: made after the commit, queued while locks are held, then sent.

The thread that queued an event sends it; in a worker process, a separate thread does. A signal without receivers makes
no event. ``signals`` defines the signals.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, connections, transaction

from .. import conf, signals
from ..messages import Published
from ..models import Message as Row
from ..policy import names
from ..policy.durations import Due, moment
from ..policy.requests import visible
from ..signals import Event, TopicSignal
from ..store.connection import session
from ..store.delivery_state import Receipt
from ..store.failures import clip
from ..store.log import NewRow

if TYPE_CHECKING:
    from .consumer_state import ConsumerState
    from .delivery import Delivery


class EventQueue:
    """A queue of events for each thread. No thread waits for the receivers of another thread's events."""

    def __init__(self) -> None:
        self._local = threading.local()

    def put(self, event: Event) -> None:
        """Queue an event. Never waits; the caller may hold locks."""
        self._mine.append(event)

    def send(self) -> None:
        """Send the events that this thread has queued. The caller must hold no locks: receivers may be slow."""
        while event := self.take():
            event.send()

    def take(self) -> Event | None:
        """Remove and return the oldest event of this thread; None if there is none."""
        return self._mine.popleft() if self._mine else None

    @property
    def _mine(self) -> deque[Event]:
        found: deque[Event] | None = getattr(self._local, "events", None)
        if found is None:
            found = self._local.events = deque()
        return found


@dataclass(frozen=True)
class Outcome:
    """The outcome of a delivery.

    ``error``: the error of a failed attempt; None if it did not fail. ``again_in``: milliseconds until the message is
    delivered again; None for never.
    """

    error: str | None = None
    again_in: int | None = None


def after_commit(using: str, send: Callable[[], None]) -> None:
    """Call ``send`` after the commit: now, or when the caller's transaction commits.

    In a transaction that was begun by turning autocommit off, never call it: Django runs no hook at its commit.
    """
    if connections[using].in_atomic_block:
        transaction.on_commit(send, using=using, robust=True)
    elif not session.in_transaction(using):
        send()


def published(
    using: str, topic: str, rows: Sequence[NewRow], dues: Sequence[Due | None], results: Sequence[Published]
) -> None:
    """Send ``published`` after the commit of stored messages. ``dues``: a due time, or None, for each message."""
    if not signals.published.has_listeners(topic):
        return
    new = [  # Without the payloads: many may accumulate until the commit.
        (row.content.metadata, row.group or None, due is not None, result)
        for row, due, result in zip(rows, dues, results, strict=True)
        if result.created or result.replaced
    ]

    def send() -> None:
        for text, group, is_scheduled, result in new:
            metadata = json.loads(text)
            details = {
                "using": using, "offset": result.offset, "id": result.id, "key": result.key,
                "kind": metadata["kind"], "headers": MappingProxyType(visible(metadata["headers"])), "group": group,
                "scheduled": is_scheduled, "replaced": result.replaced,
            }  # fmt: skip
            Event(signals.published, topic, details).send()

    if new:
        after_commit(using, send)


def redriven(using: str, topic: str, found: Iterable[dict[str, Any]]) -> None:
    """Send ``redriven`` after the commit for redriven dead letters (rows of ``letters.read``)."""
    if not signals.redriven.has_listeners(topic):
        return
    details = [
        {
            "using": using, "group": row["failed_group"], "id": row["original_id"],
            "key": names.key_of(row["partition"]), "letter_offset": int(row["offset"]),
        }
        for row in found
    ]  # fmt: skip

    def send() -> None:
        for one in details:
            Event(signals.redriven, topic, one).send()

    if details:
        after_commit(using, send)


def dropped(outbox: EventQueue, topic: str, **details: Any) -> None:
    """Queue ``dropped`` for a scheduled message that promotion dropped. ``details``: using, id, key, group, reason."""
    if signals.dropped.has_listeners(topic):
        outbox.put(Event(signals.dropped, topic, details))


def delivered(deliveries: Iterable[Delivery]) -> None:
    """Queue ``delivered`` for deliveries that now go to a handler, or to the caller of ``poll``."""
    for delivery in deliveries:
        context = delivery.hold.acknowledger.context
        if signals.delivered.has_listeners(context.topic):
            context.outbox.put(Event(signals.delivered, context.topic, _of(context, delivery)))


def ended(context: ConsumerState, deliveries: Iterable[Delivery], end: Outcome) -> None:
    """Queue the signals for deliveries whose outcome is committed, and send them."""
    for delivery in deliveries:
        if end.error is None:
            signal = signals.acked if end.again_in is None else signals.postponed
            _tell(context, signal, delivery, end, {})
        else:
            _tell(context, signals.failed, delivery, end, {"error": clip(end.error)})
            if end.again_in is None:
                failures = delivery.hold.failures + 1
                _buried(context, delivery.offset, delivery.id, delivery.key, failures, end.error)
    context.outbox.send()


def buried(context: ConsumerState, receipt: Receipt, failures: int, error: str) -> None:
    """Queue ``dead_lettered`` for a message that is in no handler: its worker died, or it cannot be decoded."""
    if not signals.dead_lettered.has_listeners(context.topic):
        return
    message_id: str | None = None
    with suppress(DatabaseError):  # The next statement fails in the same way.
        row = Row.objects.using(context.using).filter(offset=receipt.offset).first()
        if row is not None:
            message_id = row.message_id if row.original_id is None else row.original_id
    _buried(context, receipt.offset, message_id, names.key_of(receipt.partition), failures, error)


def leases_won(context: ConsumerState, partitions: Iterable[str]) -> None:
    _lease(context, signals.lease_won, partitions, {})


def leases_lost(context: ConsumerState, partitions: Iterable[str], reason: str) -> None:
    _lease(context, signals.lease_lost, partitions, {"reason": reason})


def _lease(
    context: ConsumerState, signal: TopicSignal, partitions: Iterable[str], more: dict[str, str]
) -> None:
    if signal.receivers and (names := tuple(sorted(partitions))) and signal.has_listeners(context.topic):
        context.outbox.put(Event(signal, context.topic, {**_who(context), "partitions": names, **more}))


def _tell(
    context: ConsumerState, signal: TopicSignal, delivery: Delivery, end: Outcome, more: dict[str, Any]
) -> None:
    if not signal.has_listeners(context.topic):
        return
    if signal is not signals.acked:
        due = None if end.again_in is None else moment(context.clock.now() + end.again_in)
        more |= {"retry_in": None if end.again_in is None else end.again_in / 1000, "retry_at": due}
    context.outbox.put(Event(signal, context.topic, {**_of(context, delivery), **more}))


def _buried(
    context: ConsumerState, offset: int, message_id: str | None, key: str | None, failures: int, error: str
) -> None:
    if signals.dead_lettered.has_listeners(context.topic):
        details = {
            **_who(context), "offset": offset, "id": message_id, "key": key, "failure_count": failures,
            "error": clip(error), "dead_letter_topic": conf.dead_letter_topic(context.topic),
        }  # fmt: skip
        context.outbox.put(Event(signals.dead_lettered, context.topic, details))


def _who(context: ConsumerState) -> dict[str, Any]:
    return {"using": context.using, "group": context.group, "worker": context.holder.name}


def _of(context: ConsumerState, delivery: Delivery) -> dict[str, Any]:
    """Return a delivery's fields without its payload: thousands of events may wait for a slow receiver."""
    return {
        **_who(context), "offset": delivery.offset, "id": delivery.id, "key": delivery.key, "kind": delivery.kind,
        "headers": MappingProxyType(delivery.headers), "attempt": delivery.attempt,
        "published_at": delivery.published_at,
    }  # fmt: skip
