"""The loop of ``runconsumer``: it claims messages, runs handlers in threads, and settles the deliveries.

The loop uses one database connection, which no handler uses.
"""

from __future__ import annotations

import logging
import math
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from django.db import Error

from .. import conf, instruments
from ..exceptions import MQueueError, NotRegistered, TooManyHanging
from ..policy.names import SUBSCRIBER_MAX, check_name
from ..protocol.subscriber import Subscriber
from ..protocol.tailer import Tailer
from ..protocol.takeover import RECONNECT
from ..protocol.waking.polling import Polling
from ..service.actions import this_process
from ..service.subscription import default_name, refuse_in_transaction, stop_safely
from ..store.connection import errors, session
from ..store.connection.session_lock import worker_session
from ..store.connection.session_variables import lazy_autocommit, named_sessions
from .call_starter import CallStarter
from .joined_subscribers import JoinedSubscribers
from .liveness import LivenessFile
from .registry import Handler
from .signal_dispatcher import SignalDispatcher

logger = logging.getLogger("django_mqueue")

RECONNECT_MAX = RECONNECT / 2
PAUSE_LEAST = 0.02
SETTLE_LOCKED_FOR = 10.0
"""Seconds for which a stopping worker tries to settle deliveries that another transaction has locked."""


@dataclass(frozen=True)
class RunOptions:
    """The options of a worker. Times are in seconds.

    None means the value of each handler or setting, a generated ``name``, no limit, or no file.

    ``drain``: stop when nothing is left to do now. ``drain_timeout``: the wait for messages that other workers have
    leased; None: two lease durations. ``liveness_file``: the path of a file that the loop touches.
    """

    threads: int = 4
    name: str | None = None
    batch_size: int | None = None
    poll_interval: float | None = None
    drain: bool = False
    drain_timeout: float | None = None
    max_messages: int | None = None
    max_seconds: float | None = None
    liveness_file: str | None = None
    using: str | None = None


WorkerContext = Callable[[str], AbstractContextManager[object]]
"""Returns the context in which a worker runs, given its name."""


class Runner:
    """Runs handlers until it is stopped. Raises ``ValueError`` for an invalid name."""

    def __init__(
        self,
        handlers: Sequence[Handler],
        options: RunOptions,
        worker_context: WorkerContext = lambda name: nullcontext(),
    ) -> None:
        self.options, self.using = options, conf.database(options.using)
        self._worker_context, self._liveness = worker_context, LivenessFile(options.liveness_file)
        self._stopping = False
        self._signals = SignalDispatcher()
        self._tailer = Tailer(self.using, self._signals)
        self._handlers: dict[Subscriber, Handler] = {}
        self.name = name = check_name("name", options.name or default_name(), SUBSCRIBER_MAX)
        self._program = f"worker {name}: {this_process()}"
        for handler in handlers:
            its_options = handler.options(self.using, batch_size=options.batch_size)
            subscriber = Subscriber(
                handler.topic, handler.group, name, its_options, self._tailer, polled_by_caller=False
            )
            self._handlers[subscriber] = handler
        self._starter = CallStarter(self._handlers, options.threads, options.max_messages)
        self._pool, self._completer = self._starter.pool, self._starter.completer
        topics = list(dict.fromkeys(handler.topic for handler in handlers))
        self._polling = Polling(self.using, topics, options.poll_interval, self._pool.wake)
        self._subscribers = JoinedSubscribers(self.using, self._handlers, self._starter.ready)
        self._joined = self._subscribers.joined
        self._error: MQueueError | None = None
        self._ready = True  # Whether threads were free at the end of the last turn.
        self._failures, self._last_success = 0, time.monotonic()
        self._deadline = math.inf
        self._more = False
        self._each_minute = [handler.each_minute for handler in handlers if handler.each_minute]
        self._minute_over = 0.0
        self.left = 0  # After a drain: the least number of messages that others have locked or leased.
        self._left_since: float | None = None

    @property
    def counts(self) -> Counter[str]:
        """Return the number of settled messages by verb."""
        return self._completer.counts

    @property
    def started(self) -> int:
        """Return the number of messages that were given to handlers."""
        return self._starter.started

    @property
    def hanging(self) -> int:
        """Return the number of handlers that were given up and still run. Their threads cannot be ended."""
        return len(self._pool.hanging)

    def stop(self) -> None:
        """Claim nothing new, and finish what runs. May be called from a signal handler or another thread."""
        self._stopping = True
        self._pool.wake()

    def run(self) -> None:
        """Work until stopped, drained, or one of the limits is reached.

        Raises the error that stopped the worker: ``MQueueError``, or ``DatabaseError`` if waiting does not help.
        """
        refuse_in_transaction(self.using, "run consumers")
        if self.options.max_seconds is not None:
            self._deadline = time.monotonic() + self.options.max_seconds
        with (
            self._liveness,
            self._worker_context(self.name),
            self._signals,
            named_sessions(self.using, self._program),
            worker_session(self.using, self._idle_timeout()) as self._check_connection,
            lazy_autocommit(self.using),
            nullcontext() if self.options.drain else self._polling,
            self._pool,
        ):
            try:
                self._protected(self._subscribers.start)
                self._log("worker started", len(self._joined))
                while self._starter.is_below_limit and time.monotonic() < self._deadline:
                    if self._stopping or self._protected(self._cycle):
                        break
            finally:
                self._finish()
                self._log("worker stopped", self.started)
        if self._error:
            raise self._error

    @property
    def _fields(self) -> dict[str, Any]:
        return {"mqueue_subscriber": self.name}

    def _log(self, event: str, count: int) -> None:
        """Log the start or the end of the worker."""
        logger.info(
            "%s: %s, pid %s, %s %s", event, self.name, os.getpid(), count,
            "handlers" if event == "worker started" else "messages",
            extra={**self._fields, "mqueue_event": event.replace(" ", "_")},
        )  # fmt: skip

    def _protected(self, step: Callable[[], bool | None]) -> bool:
        """Run a step of the loop, and return its result. If the database fails, wait and repeat the step.

        After an error while the worker stops, return True and do not repeat the step. ``_wind_up`` is repeated until
        ``_is_too_late``.
        """
        while True:
            self._liveness.touch()
            try:
                self._check_connection()
                result = bool(step())
                if self._failures:
                    away = time.monotonic() - self._last_success
                    logger.warning(
                        "the database is back: worker %s, after %.1f s and %s errors", self.name, away, self._failures,
                        extra={**self._fields, "mqueue_event": "database_back", "mqueue_seconds": round(away, 3)},
                    )  # fmt: skip
                self._failures, self._last_success = 0, time.monotonic()
                return result
            except Error as error:
                if not errors.is_temporary(error):
                    raise
                self._failures += 1
                instruments.record(instruments.DATABASE_ERRORS, 1)
                log = logger.warning if self._failures == 1 else logger.debug
                log(
                    "database error, retrying: %s", error,
                    extra={**self._fields, "mqueue_event": "database_error"},
                )  # fmt: skip
                session.discard(self.using)
                self._polling.soon()
                wait = min(0.05 * 2 ** min(self._failures, 10), RECONNECT_MAX)
                self._starter.collect(wait * (0.5 + random.random() / 2))
                if time.monotonic() >= self._deadline:
                    self._stopping = True
                # A signal may have set it meanwhile.
                if self._stopping and (step != self._wind_up or self._is_too_late()):
                    return True

    def _cycle(self) -> bool:
        """Run one turn of the loop. Return True to end the loop: the drain is over, or no group is left."""
        self._settle()
        if self._each_minute and time.monotonic() >= self._minute_over:
            for call in self._each_minute:
                call()
            self._minute_over = time.monotonic() + 60
        if self._more or self._polling.due_in(ready=self._ready) <= 0:
            idle = self._starter.is_idle
            self._more = self._polling.read(self._tailer, ready=self._ready, idle=idle)
        self._tick_subscribers()
        if not self._subscribers:
            return True
        self._completer.keep_visible()
        claimed = self._starter.claim()
        if claimed or self._more or self._starter.has_startable:
            self._ready = False
            return False
        if self._starter.is_idle and self.options.drain and self._is_drained():
            return True
        self._ready = self._starter.free_threads() > 0
        read_in = self._polling.due_in(ready=self._ready)
        self._starter.collect(min(read_in, self._pool.next_limit_in(), self._due_in()))
        return False

    def _due_in(self) -> float:
        """Return the seconds until work is due that does not depend on the poll interval."""
        due = [subscriber.due_in() for subscriber in self._joined]
        if self._pool.calls:
            due.append(self._completer.due_in())
        return max(min(due, default=math.inf), PAUSE_LEAST)

    def _tick_subscribers(self, *, winding_up: bool = False) -> None:
        """Do the due work of each subscriber. If its group was unsubscribed, it waits until it is subscribed again."""
        for subscriber in list(self._joined):
            try:
                with subscriber.backoff_after_lock_wait():
                    if winding_up:
                        subscriber.wind_up(self._starter.sharing.ahead[subscriber])
                    else:
                        subscriber.tick()
                        self._starter.sharing.put_back_leaving(subscriber)
            except MQueueError as error:
                self._retire(subscriber, error)
        if not winding_up:
            self._subscribers.join_if_due()

    def _retire(self, subscriber: Subscriber, error: MQueueError) -> None:
        """Retire a subscriber. After ``NotRegistered`` it may return; any other error stops the process."""
        fields = subscriber.state.log_fields("handler_stopped")
        logger.error("handler stops: %s: %s", self._handlers[subscriber].name, error, extra=fields)
        self._subscribers.retire(subscriber, may_return=isinstance(error, NotRegistered))
        self._starter.sharing.ahead[subscriber].clear()
        if not isinstance(error, NotRegistered):
            self._stopping = True
        if self._stopping or not self._subscribers:
            self._error = self._error or error

    def _idle_timeout(self) -> float:
        """Return the connection's idle timeout in seconds. When it ends, the leases have expired."""
        beats = max(float(conf.get("DISCOVERY_INTERVAL", h.topic)) for h in self._handlers.values())
        return max(2 * min(self._polling.interval, beats), self._lease())

    def _lease(self) -> float:
        return max(float(conf.get("LEASE_DURATION", handler.topic)) for handler in self._handlers.values())

    def _settle(self) -> None:
        """Settle the outcomes, and give up handlers that run too long. If too many hang, stop the worker.

        Only a restart ends the threads of handlers that hang.
        """
        self._pool.check_limits()
        if self.hanging >= self._pool.hanging_limit and self._error is None:
            self._error = TooManyHanging(self.hanging)
            self._stopping = True
            logger.error("worker stops: %s", self._error)
        self._starter.settle(start_more=not self._stopping)

    def _is_drained(self) -> bool:
        """Search the tail, all partitions and free leases. Return whether to end the drain."""
        if self._tailer.tick():
            return False
        work = False
        for subscriber in list(self._joined):
            try:
                with subscriber.backoff_after_lock_wait():
                    work = subscriber.find_work() or work
                work = work or subscriber.backing_off
            except MQueueError as error:
                self._retire(subscriber, error)
        work = work or bool(self._subscribers.starting)
        left = 0
        if not work:
            left = self._tailer.locked + sum(subscriber.left_to_others() for subscriber in self._joined)
        if not left:
            self._left_since = None
            return not work
        return self._has_waited_for(left)

    def _has_waited_for(self, left: int) -> bool:
        """Return whether to stop waiting for at least ``left`` messages that others have locked or leased."""
        if self._left_since is None:
            logger.info("drain: waiting for messages that others have locked or leased: %s", left)
            self._left_since = time.monotonic()
        limit = 2 * self._lease() if self.options.drain_timeout is None else self.options.drain_timeout
        if time.monotonic() - self._left_since >= limit:
            self.left = left
        return bool(self.left)

    def _finish(self) -> None:
        """Let running handlers end, settle their deliveries, give back the other deliveries, and leave the groups."""
        deadline = math.inf
        self._starter.withdraw(all_lots=True)
        while self._pool.calls or not self._completer.all_locked:
            if self._protected(self._wind_up):
                break
            if not self._pool.calls:
                deadline = min(deadline, time.monotonic() + SETTLE_LOCKED_FOR)
            if time.monotonic() > deadline:
                count = len(self._completer.unsettled)
                logger.error("deliveries not settled: %s; another transaction has locked their rows", count)
                break
        for subscriber in self._joined:
            try:
                unstarted = self._starter.sharing.ahead[subscriber]
                stop_safely(subscriber, unstarted, wait_for_locks=not self.hanging)
            except (Error, MQueueError):
                logger.exception("could not leave the group; its leases expire by themselves")
                session.discard(self.using)

    def _is_too_late(self) -> bool:
        """Return whether nothing runs, and all outcomes are stale: the leases have expired during an outage."""
        away = time.monotonic() - self._last_success
        return away > self._lease() and not self._pool.calls

    def _wind_up(self) -> bool:
        self._stopping = True
        self._settle()
        self._tick_subscribers(winding_up=True)
        self._completer.keep_visible()
        if self._pool.calls or self._completer.unsettled:
            self._starter.collect(min(0.2, self._pool.next_limit_in()))
        return False
