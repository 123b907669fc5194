"""Consuming by hand: ``Subscription``."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType

from django.db import DatabaseError

from .. import conf, tracing
from ..exceptions import ClosedSubscription, MQueueError
from ..policy import names
from ..policy.durations import to_ms
from ..policy.solitude import Solitude
from ..store import session
from . import telling
from .after_commit import confirm
from .context import Options
from .delivery import Delivery
from .dispatch import Dispatch
from .engine import Engine
from .feed import Feed
from .registration import Start, check_group, check_start, subscribe, topic_limit
from .telling import Outbox

BATCH_MAX = 1000


def refuse_in_transaction(using: str, what: str) -> None:
    """Raise ``MQueueError`` if the caller has a transaction open on the queue's database."""
    if session.in_transaction(using):
        raise MQueueError(
            f"cannot {what} inside a transaction on {using!r}: what is delivered would be undone with it. "
            "In tests use a TransactionTestCase, or pytest.mark.django_db(transaction=True)"
        )


def stop_safely(engine: Engine, unstarted: Sequence[Delivery], *, patient: bool = True) -> None:
    """Leave the group, on a new connection if the old one has died meanwhile."""
    try:
        engine.stop(unstarted, patient=patient)
    except (DatabaseError, OSError) as error:
        if not session.is_lost(error) or session.in_transaction(engine.context.using):
            raise
        session.discard(engine.context.using)
        engine.stop(unstarted, patient=patient)


def default_name() -> str:
    """A name that no other subscriber has: host, process and four random bytes."""
    return f"{socket.gethostname()[:80]}-{os.getpid()}-{secrets.token_hex(4)}"


def check_count(argument: str, value: object, most: int | None = None) -> int:
    """``value`` if it is a whole number from 1 to ``most``. Raises naming the argument and the limit."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{argument} must be an int, not {type(value).__name__}")
    if value < 1 or (most is not None and value > most):
        raise ValueError(
            f"{argument} must be at least 1{f' and at most {most}' if most else ''}, not {value}"
        )
    return value


class Subscription:
    """A member of a consumer group, consuming by hand; a context manager.

    Entering registers the group if it is new (``start`` as for ``subscribe``) and joins it; leaving releases the
    leases and deregisters, so that others take over at once. A subscriber that starts under the ``name`` of one
    that is still there takes its place: the older one's polls give nothing, and soon raise ``FencedSubscription``.
    ``strict`` delivers one message of a key at a time, in order; else up to ``batch_size`` of a partition are
    out at once. What is not answered within ``visibility_timeout`` seconds is delivered again; ``max_attempts`` failed
    attempts dead-letter it. Poll at least once in each ``LEASE_DURATION``, or the leases expire.
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
        names.check_topic(topic, topic_limit())
        check_group(group)
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
        self._engine: Engine | None = None
        self._dispatch: Dispatch | None = None
        self._polling = threading.Lock()
        self._outbox = Outbox()

    def __enter__(self) -> Subscription:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> Subscription:
        """Join the group; what entering the ``with`` block does."""
        if self._engine is not None:
            raise MQueueError(f"subscription {self.name!r} is open already")
        refuse_in_transaction(self.using, "open a subscription")
        subscribe(self.topic, self.group, self.start, using=self.using)
        engine = Engine(
            self.topic, self.group, self.name, self._options, Feed(self.using, self._outbox), expires=True
        )
        engine.start()
        self._engine, self._dispatch = engine, Dispatch([engine], Solitude(quiet_for=0))
        return self

    def close(self) -> None:
        """Release the leases and deregister. Deliveries still open may be delivered again at once, elsewhere."""
        with self._polling:
            engine, self._engine = self._engine, None
            if engine is not None:
                stop_safely(engine, ())
        self._outbox.send()

    def poll(self, max_messages: int = 100) -> list[Delivery]:
        """Do what is due, and return what is this subscriber's to handle now: perhaps nothing. Never waits.

        A message that an earlier subscriber (or this one) left unanswered comes alone, when nothing else is open:
        if its worker dies again, it is known to be the cause. Raises ``FencedSubscription``, ``NotRegistered``,
        ``ClosedSubscription``, or ``MQueueError`` inside a transaction, where a claim would be undone with it.
        """
        check_count("max_messages", max_messages)
        refuse_in_transaction(self.using, "poll")
        begun = tracing.now()
        try:
            deliveries = self._deliveries(max_messages)
            tracing.received(deliveries, self.name, begun)
            telling.delivered(deliveries)
        finally:
            self._outbox.send()
        return deliveries

    def _deliveries(self, max_messages: int) -> list[Delivery]:
        with self._polling:
            engine, dispatch = self._opened()
            with engine.context.lock:
                try:
                    return self._poll(engine, dispatch, max_messages)
                except Exception as error:
                    if not session.is_lost(error):
                        raise
                session.discard(self.using)
                return self._poll(engine, dispatch, max_messages)

    def ack(self, deliveries: Sequence[Delivery]) -> bool:
        """Ack many in one statement. Raises ``StaleDelivery`` naming those that were not this one's any more."""
        for delivery in deliveries:
            if not isinstance(delivery, Delivery):
                raise TypeError(f"deliveries must be Delivery objects of this subscription, not {delivery!r}")
        engine, _ = self._opened()
        for delivery in deliveries:
            if delivery.hold.answering is not engine.answering:
                raise ValueError(f"delivery {delivery.topic}@{delivery.offset} is another subscription's")
        return engine.answering.ack(deliveries)

    def _poll(self, engine: Engine, dispatch: Dispatch, max_messages: int) -> list[Delivery]:
        confirm(engine.context)
        engine.tick()
        engine.feed.tick()
        engine.membership.tick()
        return dispatch.claim(max_messages)

    def _opened(self) -> tuple[Engine, Dispatch]:
        if self._engine is None or self._dispatch is None:
            raise ClosedSubscription(f"subscription {self.name!r} is not open: use it inside its with block")
        return self._engine, self._dispatch
