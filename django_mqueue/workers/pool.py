"""The thread pool in which a worker's handlers run, and their time limits.

A thread runs one *lot* at a time: a list of calls that run one after another. A handler past its ``max_runtime`` has
failed. Its thread is given up and replaced. A handler that seems to hang is logged.

This is no ``ThreadPoolExecutor``, because it replaces a thread that hangs, and takes waiting calls of a lot back.
"""

from __future__ import annotations

import itertools
import logging
import math
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial

from django.db import connections, reset_queries

from ..exceptions import TimeLimitExceeded
from ..protocol.delivery import DeliveryAcknowledger
from ..store.connection.session_variables import lazy_autocommit
from .executor import UNKNOWN_ERROR, execute
from .handler_calls import HandlerCall, Outcome, describe, verdicts_on
from .registry import Handler
from .turns import LOT_SECONDS

logger = logging.getLogger("django_mqueue")

HANGING_LEAST = 4
SLOW = 2 * LOT_SECONDS
"""Seconds after which the calls that wait behind a running call are given to other threads."""
LOT_VALID = 1.0
"""Seconds after which a lot's thread begins no further call. A suspended process may have lost its leases."""
CANCEL_GRACE = 2.0
"""Seconds that an ``async`` handler has to end after it was cancelled."""
LOG_AFTER_TIMEOUTS = 10
"""A handler without a limit is logged after this many visibility timeouts, and again when its time has doubled."""


@dataclass(eq=False)
class Lot:
    """Calls of a handler for one thread. ``waiting``: calls that have not begun. ``ended``: calls to collect.

    ``thread`` takes calls from the left of ``waiting``, and the worker's loop takes them back from the right.
    """

    handler: Handler
    acknowledger: DeliveryAcknowledger
    waiting: deque[HandlerCall]
    thread: threading.Thread | None = None
    current: HandlerCall | None = None
    ended: deque[HandlerCall] = field(default_factory=deque)
    given_up: bool = False
    valid_until: float = field(default_factory=lambda: time.monotonic() + LOT_VALID)

    def next(self) -> HandlerCall | None:
        """Return the next call to run, or None at the end of the lot. The first one always runs."""
        if self.current and time.monotonic() > self.valid_until:
            return None
        try:
            self.current = self.waiting.popleft()
        except IndexError:
            return None
        return self.current

    def is_slow_in(self, now: float) -> float:
        """Return the seconds until other threads should run the waiting calls, because the current one is slow."""
        if not self.waiting or self.current is None:
            return math.inf
        return 0.0 if self.given_up else self.current.started + SLOW - now


class HandlerPool:
    """Up to ``size`` daemon threads that run lots, and the hanging threads, whose calls were given up and still run.

    ``calls``: the number of calls that run or wait, or whose outcomes are not collected.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.calls = 0
        self.lots: dict[Lot, None] = {}
        self.running: Counter[DeliveryAcknowledger] = Counter()
        """The number of lots of each subscriber."""
        self.hanging: dict[HandlerCall, threading.Thread] = {}
        self.hanging_limit = max(size, HANGING_LEAST)
        """The number of hanging calls at which the process must stop: each keeps a thread and connections."""
        self._tasks: queue.SimpleQueue[Lot | Callable[[], None] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Lot | None] = queue.SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._log_at: dict[HandlerCall, float] = {}
        self._unstarted: list[HandlerCall] = []
        """Calls that waited in lots that have ended, because a call was given up or the lot was no longer valid."""

    @property
    def free(self) -> int:
        """Return the number of threads without a lot."""
        return self.size - len(self.lots)

    @property
    def has_waiting(self) -> bool:
        """Return whether calls were given to threads and have not begun."""
        return bool(self._unstarted) or any(lot.waiting for lot in self.lots)

    def start(self, calls: Sequence[HandlerCall]) -> None:
        """Run calls of one handler, one after another, in a free thread. The caller ensures that a thread is free."""
        lot = Lot(calls[0].handler, calls[0].acknowledger, deque(calls))
        self.calls += len(calls)
        self.lots[lot] = None
        self.running[lot.acknowledger] += 1
        if len(self._threads) < min(len(self.lots), self.size):
            self._start_thread()
        self._tasks.put(lot)

    def finished(self, timeout: float) -> list[HandlerCall]:
        """Return the calls that have ended. Wait for the end of a lot up to ``timeout`` seconds, or until ``wake``."""
        ended: list[Lot] = []
        with suppress(queue.Empty):
            result = self._results.get(timeout=timeout) if timeout > 0 else self._results.get_nowait()
            while True:
                if result is not None:
                    ended.append(result)
                result = self._results.get_nowait()
        found = [lot.ended.popleft() for lot in self.lots for _ in range(len(lot.ended))]
        for lot in ended:
            del self.lots[lot]
            self.running[lot.acknowledger] -= 1
            self._unstarted += lot.waiting
        self.calls -= len(found)
        return found

    def withdraw(self, *, all_lots: bool) -> list[HandlerCall]:
        """Take back waiting calls: of all lots, or of lots that have ended or whose current call is slow."""
        now, found = time.monotonic(), self._unstarted[::-1]
        self._unstarted.clear()
        for lot in self.lots:
            if all_lots or lot.is_slow_in(now) <= 0:
                with suppress(IndexError):
                    while True:
                        found.append(lot.waiting.pop())
        self.calls -= len(found)
        return found[::-1]

    def wake(self) -> None:
        """End the wait in ``finished``. May be called from a signal handler or another thread."""
        self._results.put(None)

    def give_up(self, lot: Lot, call: HandlerCall, find_outcomes: Callable[[], list[Outcome]]) -> None:
        """Give up a call that runs too long. It keeps its thread. Another thread calls ``find_outcomes``."""
        with self._lock:
            if lot.thread is None or not call.finish([]):
                return  # The call has just ended.
            self._threads.remove(lot.thread)
            self.hanging[call] = lot.thread
            lot.given_up = True
        for delivery in call.deliveries:
            delivery.status.overdue = delivery not in call.verdicts_without_call

        def end() -> None:
            try:
                call.outcomes = find_outcomes()
            except BaseException:  # A retry policy may raise ``SystemExit``.
                logger.exception("handler failed, and its error cannot be shown: %s", call)
                call.outcomes = [Outcome(d, UNKNOWN_ERROR, overdue=True) for d in call.deliveries]
            lot.ended.append(call)
            self._results.put(lot)

        self._start_thread()
        self._tasks.put(end)

    def check_limits(self) -> None:
        """Give up handlers that have run too long, and log handlers that seem to hang. Call no user code here."""
        now = time.monotonic()
        for lot, call in self._running_calls():
            ran, long = now - call.started, LOG_AFTER_TIMEOUTS * call.handler.visible_ms / 1000
            if ran >= _limit(call):
                stack = call.stack()
                logger.warning(
                    "handler exceeded max_runtime: %s: running for %.1f s (max_runtime is %g s); its stack now:\n%s",
                    call, ran, call.max_runtime, stack,
                )  # fmt: skip
                self.give_up(lot, call, partial(_overdue, call, stack))
            elif call.max_runtime is None and ran >= self._log_at.get(call, long):
                self._log_at[call] = 2 * ran
                logger.warning(
                    "handler still running: %s: for %.1f s; its stack now:\n%s", call, ran, call.stack()
                )
        self._log_at = {call: at for call, at in self._log_at.items() if not call.ended}

    def next_limit_in(self) -> float:
        """Return the seconds until the next time limit, or until a lot is slow; infinity if there is none."""
        now = time.monotonic()
        limits = [call.started + _limit(call) - now for _, call in self._running_calls()]
        return max(min([*limits, *(lot.is_slow_in(now) for lot in self.lots)], default=math.inf), 0)

    def _running_calls(self) -> list[tuple[Lot, HandlerCall]]:
        found = ((lot, lot.current) for lot in self.lots)
        return [(lot, call) for lot, call in found if call and call.started < math.inf and not call.ended]

    def __enter__(self) -> HandlerPool:
        return self

    def __exit__(self, *error: object) -> None:
        """Wait for all threads except the hanging threads."""
        with self._lock:
            threads = list(self._threads)
        for _ in threads:
            self._tasks.put(None)
        for thread in threads:
            thread.join()

    def _start_thread(self) -> None:
        name = f"mqueue-handler_{next(self._numbers)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def _work(self) -> None:
        try:
            while (task := self._tasks.get()) is not None:
                if not isinstance(task, Lot):
                    task()
                elif not self._run(task):
                    return
        finally:
            with suppress(Exception):
                connections.close_all()

    def _run(self, lot: Lot) -> bool:
        """Run the calls of a lot. Return False if one of them was given up: another thread has replaced this one."""
        reset_queries()
        lot.thread = threading.current_thread()
        with _transactions_of(lot):
            while call := lot.next():
                outcomes = execute(call)
                with self._lock:
                    in_time = call.finish(outcomes)
                    if not in_time:
                        self.hanging.pop(call, None)
                if not in_time:
                    logger.warning("handler ended after max_runtime: %s", call)
                    return False
                lot.ended.append(call)
        self._results.put(lot)
        return True


def _transactions_of(lot: Lot) -> AbstractContextManager[None]:
    """Let autocommit stay off between an atomic handler's transactions, if no code of the user runs there."""
    handler = lot.handler
    if len(lot.waiting) < 2 or not handler.atomic or handler.filter is not None or handler.kinds is not None:
        return nullcontext()
    return lazy_autocommit(lot.acknowledger.state.using, own_hooks=1)


def _limit(call: HandlerCall) -> float:
    limit = call.max_runtime
    return math.inf if limit is None else limit + (CANCEL_GRACE if call.cancels else 0)


def _overdue(call: HandlerCall, stack: str) -> list[Outcome]:
    """Return the outcomes of a call that ran too long. Each message that the handler got has failed."""
    error = TimeLimitExceeded(call.max_runtime or 0)
    call.record_error(error)
    found = dict(call.verdicts_without_call)
    given = [delivery for delivery in call.deliveries if delivery not in found]
    found |= verdicts_on(call.handler, given, error, f"{describe(error)}\nIts stack then:\n{stack}")
    return [Outcome(delivery, found[delivery], overdue=delivery in given) for delivery in call.deliveries]
