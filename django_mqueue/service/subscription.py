"""``Subscription``: consume messages by polling, without ``runconsumer``."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from datetime import timedelta

from django.db import Error

from .. import conf, tracing
from ..exceptions import ClosedSubscription, MQueueError
from ..policy import names
from ..policy.durations import to_ms
from ..policy.quarantine import Quarantine
from ..protocol import events
from ..protocol.acknowledging.after_commit import confirm
from ..protocol.claim_scheduler import ClaimScheduler
from ..protocol.delivery import Delivery, Options
from ..protocol.subscriber import Subscriber
from ..protocol.tailer import Tailer
from ..signals import EventQueue
from ..store.connection import errors, session
from .registration import Start, check_names, check_start, subscribe

BATCH_MAX = 1000


def refuse_in_transaction(using: str, what: str) -> None:
    """Raise ``MQueueError`` if the caller has a transaction open on the queue's database."""
    if session.in_transaction(using):
        raise MQueueError(
            f"cannot {what} inside a transaction on {using!r}: its rollback would undo the deliveries. In tests use a"
            " TransactionTestCase, or pytest.mark.django_db(transaction=True)"
        )


def stop_safely(subscriber: Subscriber, unstarted: Sequence[Delivery], *, wait_for_locks: bool) -> None:
    """Call ``subscriber.stop`` to leave the group, on a new connection if the old one is lost."""
    try:
        subscriber.stop(unstarted, wait_for_locks=wait_for_locks)
    except Error as error:
        if not errors.is_lost(error) or session.in_transaction(subscriber.state.using):
            raise
        session.discard(subscriber.state.using)
        subscriber.stop(unstarted, wait_for_locks=wait_for_locks)


def default_name() -> str:
    """Return a unique name: host, process id and four random bytes."""
    return f"{socket.gethostname()[:80]}-{os.getpid()}-{secrets.token_hex(4)}"


def check_count(argument: str, value: object, most: int | None = None) -> int:
    """Return ``value`` if it is an int from 1 to ``most``. Raise an error that names the argument and the limit."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{argument} must be an int, not {type(value).__name__}")
    if value < 1 or (most is not None and value > most):
        limit = f" and at most {most}" if most else ""
        raise ValueError(f"{argument} must be at least 1{limit}, not {value}")
    return value


class Subscription:
    """A member of a consumer group that consumes by calling ``poll``. It is a context manager.

    Entering the block registers the group if it is new (``start`` as for ``subscribe``) and joins it. Leaving the block
    releases the leases and deregisters, so that other subscribers take over at once. A subscriber that starts under the
    ``name`` of a running one replaces it: polls of the older one return nothing, and soon raise ``FencedSubscription``.

    ``strict``: deliver one message of a key at a time, in order. Otherwise up to ``batch_size`` messages of a partition
    are in flight at once. A message that is not settled within ``visibility_timeout`` (seconds or a timedelta) is
    delivered again. After ``max_attempts`` failed attempts a message becomes a dead letter. Poll at least once in each
    ``LEASE_DURATION``, or the leases expire.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        name: str | None = None,
        *,
        batch_size: int = 100,
        strict: bool = False,
        max_attempts: int = 3,
        visibility_timeout: float | timedelta = 60,
        start: Start = "earliest",
        using: str | None = None,
    ) -> None:
        check_names(topic, group)
        check_start(start)
        self.topic, self.group, self.start, self.using = topic, group, start, conf.database(using)
        self.name = default_name() if name is None else names.check_name("name", name, names.SUBSCRIBER_MAX)
        self._options = Options(
            self.using,
            check_count("batch_size", batch_size, BATCH_MAX),
            bool(strict),
            check_count("max_attempts", max_attempts),
            to_ms("visibility_timeout", visibility_timeout, least=0.001),
        )
        self._subscriber: Subscriber | None = None
        self._scheduler: ClaimScheduler | None = None
        self._polling = threading.Lock()
        self._events = EventQueue()

    def __enter__(self) -> Subscription:
        return self.open()

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(self) -> Subscription:
        """Join the group, and return this subscription. Entering the ``with`` block calls this."""
        if self._subscriber is not None:
            raise MQueueError(f"subscription {self.name!r} is already open")
        refuse_in_transaction(self.using, "open a subscription")
        subscribe(self.topic, self.group, self.start, using=self.using)
        tailer = Tailer(self.using, self._events)
        subscriber = Subscriber(
            self.topic, self.group, self.name, self._options, tailer, polled_by_caller=True
        )
        subscriber.start()
        self._subscriber, self._scheduler = subscriber, ClaimScheduler([subscriber], Quarantine(quiet_for=0))
        return self

    def close(self) -> None:
        """Release the leases and deregister. Messages that are still in flight may be delivered again at once."""
        with self._polling:
            subscriber, self._subscriber = self._subscriber, None
            if subscriber is not None:
                stop_safely(subscriber, (), wait_for_locks=True)
        self._events.send()

    def poll(self, max_messages: int = 100) -> list[Delivery]:
        """Do the work that is due, and return up to ``max_messages`` deliveries, perhaps none. Never wait for messages.

        A message whose earlier delivery was not settled is delivered alone, when nothing else is in flight. If the
        worker then dies, this message is the cause. After 10 seconds of waiting it is delivered alongside others.

        Raises ``FencedSubscription``, ``NotRegistered``, ``GroupReadsLog`` or ``ClosedSubscription``. Raises
        ``MQueueError`` inside a transaction, whose rollback would undo the claims.
        """
        check_count("max_messages", max_messages)
        refuse_in_transaction(self.using, "poll")
        begun = time.time_ns()
        try:
            deliveries = self._deliveries(max_messages)
            tracing.received(deliveries, self.name, begun)
            events.delivered(deliveries)
        finally:
            self._events.send()
        return deliveries

    def _deliveries(self, max_messages: int) -> list[Delivery]:
        try:
            return self._poll(max_messages)
        except Exception as error:
            if not errors.is_lost(error):
                raise
        session.discard(self.using)
        return self._poll(max_messages)

    def ack(self, deliveries: Sequence[Delivery]) -> bool:
        """Acknowledge many deliveries in one statement, and return True.

        Raises ``StaleDelivery`` with the deliveries that this subscriber no longer holds; the others are acknowledged.
        Raises ``TypeError`` or ``ValueError`` for anything that is not a delivery of this subscription.
        """
        deliveries = list(deliveries)
        for delivery in deliveries:
            if not isinstance(delivery, Delivery):
                raise TypeError(f"deliveries must be Delivery objects of this subscription, not {delivery!r}")
        subscriber, _ = self._open_parts()
        for delivery in deliveries:
            if delivery.status.acknowledger is not subscriber.acknowledger:
                raise ValueError(
                    f"delivery {delivery.topic}@{delivery.offset} belongs to another subscription"
                )
        return subscriber.acknowledger.ack(deliveries)

    def _poll(self, max_messages: int) -> list[Delivery]:
        if opened := self._subscriber:
            confirm(opened.state)
        with self._polling:
            subscriber, scheduler = self._open_parts()
            with subscriber.state.lock:
                subscriber.tick()
                subscriber.tailer.tick()
                subscriber.membership.tick()
                return scheduler.claim(max_messages)

    def _open_parts(self) -> tuple[Subscriber, ClaimScheduler]:
        if self._subscriber is None or self._scheduler is None:
            raise ClosedSubscription(f"subscription {self.name!r} is not open: use it inside its with block")
        return self._subscriber, self._scheduler
