"""Run handlers in the test's own thread, inside its transaction."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from .. import conf
from ..exceptions import HandlerError
from ..messages import Message
from ..models import DeliveryState
from ..policy.durations import moment_ms, to_ms
from ..policy.quarantine import Quarantine
from ..protocol.claim_scheduler import ClaimScheduler, by_call
from ..protocol.delivery import Delivery
from ..protocol.events import delivered
from ..protocol.subscriber import Subscriber
from ..protocol.tailer import Tailer
from ..service.registration import subscribe
from ..service.requesting import inline_handlers
from ..service.subscription import default_name
from ..signals import EventQueue
from ..stats.topic_list import with_originals
from ..store import schedule
from ..store.connection import session
from ..store.connection.session_variables import moved_clock
from ..store.queries import skip_scan
from ..store.queries.group_rows import now_ms
from ..workers import connection_cleanup
from ..workers.executor import verdicts
from ..workers.handler_calls import HandlerCall
from ..workers.registry import Handler, autodiscover, handlers

logger = logging.getLogger("django_mqueue")

AT_ONCE = 1000
IDLE_ROUNDS = 3
"""Rounds without a delivery after which ``drain`` ends. A round may find partitions for the next round."""


def drain(
    topic: str | None = None,
    group: str | None = None,
    *,
    until: timedelta | datetime | None = None,
    using: str | None = None,
) -> list[Message]:
    """Run the registered handlers in this thread until nothing is deliverable. Return the delivered messages in order.

    ``topic`` and ``group`` select handlers; by default all run. The list has each failed attempt, and also messages
    that a filter skips. A message that waits for its retry is not deliverable: in tests, use handlers without a delay,
    drain again later, or use ``until``. Exceptions of handlers are logged, and have the same effect on the message as
    in a worker. ``KeyboardInterrupt`` and what ends a test (``pytest.fail``, ``pytest.skip``) are then raised.

    ``until``: a time from now, or an aware datetime, by the database's clock. The clock of the connection then moves
    from each due time to the next: scheduled messages and retries that are due by then run, each at its time. Python's
    clock does not move.

    Inside a transaction (of a ``TestCase``), a handler is rolled back if its database error would break the
    transaction. Raises ``HandlerError`` if no such handler is registered, and ``TypeError`` or ``ValueError`` for a bad
    ``until``.
    """
    autodiscover()
    if getattr(settings, "TASKS", None):
        from ..tasks.queues import register_queues  # On Django 5.2 it needs the package django-tasks.

        register_queues()
    chosen = [f"{topic}:{group}" if group else topic] if topic else None
    found = [handler for handler in handlers(chosen) if group in (None, handler.group)]
    if group is not None and not found:
        raise HandlerError(f"no handler is registered for group {group!r}")
    alias = conf.database(using)
    if until is None:
        return _drain(found, alias)[0]
    now = now_ms(alias)
    end = now + to_ms("until", until) if isinstance(until, timedelta) else moment_ms("until", until)
    handled: list[Message] = []
    with moved_clock(alias) as move:
        while True:
            more, free_at = _drain(found, alias)
            handled += more
            # What is due by now and was not delivered waits for something else, such as a paused group.
            times = (_next_due(found, alias, now), free_at)
            due = min((at for at in times if at is not None and at > now), default=None)
            if due is None or due > end:
                return handled
            now = due
            move(now)


def _drain(chosen: Sequence[Handler], using: str) -> tuple[list[Message], int | None]:
    """Return the delivered messages, and when the first pause of a job limit ends; None if no job waits."""
    run = _Drain(chosen, using)
    try:
        return run(), run.free_at
    finally:
        run.stop()


def _next_due(chosen: Sequence[Handler], using: str, now: int) -> int | None:
    """Return when the next scheduled message or retry after ``now`` is due. None: there is none.

    Times are in epoch milliseconds.
    """
    found, after = [], (now, 1 << 62)
    for handler in chosen:
        found += [int(row["available_at"]) for row in schedule.page(using, handler.topic, after, None, 1)]
        waiting = DeliveryState.objects.using(using).filter(
            consumer_group=handler.group, topic=handler.topic, acked=False, invisible_until__gt=now
        )
        found += [due for (due,) in waiting.order_by("invisible_until").values_list("invisible_until")[:1]]
    return min(found, default=None)


@contextmanager
def requests_answered() -> Iterator[None]:
    """Let ``request`` run the topic's registered handlers in this thread, instead of waiting for a worker.

    So code that calls ``request`` can be tested in a ``TestCase``. ``request`` raises ``RequestTimeout`` if the
    handlers do not reply at once, and ``HandlerError`` if there are no handlers.
    """
    before = inline_handlers.set(lambda topic, using: drain(topic, using=using))
    try:
        yield
    finally:
        inline_handlers.reset(before)


class _Drain:
    """A worker without threads and without waiting. It uses the caller's transaction, if there is one."""

    def __init__(self, chosen: Sequence[Handler], using: str) -> None:
        self.using, self.events = using, _DeferredEvents(using)
        self.tailer = Tailer(using, self.events)
        self.handlers: dict[Subscriber, Handler] = {}
        self.scheduler = ClaimScheduler([], Quarantine(quiet_for=0))
        self._claimed: deque[list[Delivery]] = deque()
        """Claimed messages that no handler has got yet, by call."""
        for handler in chosen:
            subscribe(handler.topic, handler.group, handler.start, using=using)
        self._without_messages = list(chosen)
        self._start_subscribers()

    def _start_subscribers(self) -> bool:
        """Start subscribers for handlers whose topics hold messages now. Return whether there are new ones.

        A project can have many handlers, of which a test concerns few.
        """
        if not self._without_messages:
            return False
        stored = with_originals(skip_scan.topics_in_log(self.using))
        fresh = [handler for handler in self._without_messages if handler.topic in stored]
        for handler in fresh:
            options = handler.options(self.using, eager=True)
            subscriber = Subscriber(
                handler.topic, handler.group, default_name(), options, self.tailer, polled_by_caller=False
            )
            subscriber.start()
            self.handlers[subscriber] = handler
            self.scheduler.subscribers.append(subscriber)
            self._without_messages.remove(handler)
        return bool(fresh)

    def __call__(self) -> list[Message]:
        handled: list[Message] = []
        idle = 0
        while self.handlers and idle < IDLE_ROUNDS:
            for subscriber in self.handlers:
                subscriber.tick()
            more = self.tailer.tick()
            for subscriber in self.handlers:
                subscriber.membership.tick()
            deliveries = self.scheduler.claim(AT_ONCE)
            self.events.flush()
            self._claimed.extend(by_call(deliveries))
            while self._claimed:
                together = self._claimed.popleft()
                handled += together
                delivered(together)
                self.events.flush()
                self._handle(together)
                self.events.flush()
            idle = 0 if deliveries or more else idle + 1
            if idle == 1:
                if self._start_subscribers():
                    idle = 0
                for subscriber in self.handlers:
                    subscriber.find_work()
        return handled

    @property
    def free_at(self) -> int | None:
        partitions = [p for one in self.handlers for p in one.state.partitions.values()]
        return min(
            (p.free_at for p in partitions if p.pause and (p.fresh or p.waiting or p.quarantined)),
            default=None,
        )

    def stop(self) -> None:
        left = [delivery for together in self._claimed for delivery in together]
        for subscriber in self.handlers:
            subscriber.stop([d for d in left if d.status.acknowledger is subscriber.acknowledger])
        self.events.flush()

    def _handle(self, together: list[Delivery]) -> None:
        handler = next(
            handler
            for subscriber, handler in self.handlers.items()
            if subscriber.acknowledger is together[0].status.acknowledger
        )
        call = _Call(handler, together)
        keeps_transaction = session.in_transaction(self.using)
        with transaction.atomic(using=self.using) if keeps_transaction else nullcontext():
            found = verdicts(call, keeps_transaction=keeps_transaction)
        for delivery, verdict in found.items():
            verdict.settle(delivery)
            if verdict.verb not in ("ack", "postpone"):
                dead = delivery.status.dead_lettered
                logger.warning(
                    "attempt failed: %s: %s@%s attempt %s, %s: %s", handler.name, delivery.topic, delivery.offset,
                    delivery.attempt, "dead-lettered" if dead else f"again in {verdict.delay:.3g} s", verdict.error,
                )  # fmt: skip
        if call.interruption is not None:
            raise call.interruption


class _Call(HandlerCall):
    """A call in the test's thread. It keeps what must end the test, such as Ctrl-C or ``pytest.fail``."""

    interruption: BaseException | None = None

    def record_error(self, exception: BaseException) -> None:
        super().record_error(exception)
        if not isinstance(exception, (Exception, SystemExit, CancelledError)):
            self.interruption = exception


class _DeferredEvents(EventQueue):
    """Sends signals only between two steps, because a receiver could break a handler's transaction."""

    def __init__(self, using: str) -> None:
        super().__init__()
        self.using = using

    def send(self) -> None:
        """Do nothing: ``flush`` sends the events."""

    def flush(self) -> None:
        while self.events:
            event = self.events.popleft()
            if session.in_transaction(self.using):
                with transaction.atomic(using=self.using):  # A database error must not break the caller's.
                    event()
            else:
                event()
                connection_cleanup.after_use()
