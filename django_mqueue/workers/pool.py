"""The thread pool in which a worker's handlers run, and their time limits.

A handler past its ``max_runtime`` has failed. Its thread is given up and replaced. A handler that seems to hang is
logged.
"""

from __future__ import annotations

import itertools
import logging
import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from django.db import connections

from ..exceptions import TimeLimitExceeded
from ..protocol.acknowledging.acknowledger import Acknowledger
from .executor import CANNOT_TELL, call
from .jobs import Job, Outcome, describe, verdicts_on

logger = logging.getLogger("django_mqueue")

HANGING_LEAST = 4
CANCEL_GRACE = 2.0
"""Seconds that an ``async`` handler has to end after it was cancelled."""
LOG_AFTER_TIMEOUTS = 10
"""A handler without a limit is logged after this many visibility timeouts, and again when its time has doubled."""


class HandlerPool:
    """Up to ``size`` daemon threads that run jobs, and the hanging threads, whose jobs were given up and still run."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.jobs: dict[Job, None] = {}
        self.running: Counter[Acknowledger] = Counter()
        self.hanging: dict[Job, threading.Thread] = {}
        self.hanging_limit = max(size, HANGING_LEAST)
        """The number of hanging jobs at which the process must stop: each keeps a thread and connections."""
        self._tasks: queue.SimpleQueue[Job | Callable[[], None] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: dict[threading.Thread, Job | None] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._log_at: dict[Job, float] = {}

    def start(self, job: Job) -> None:
        """Run a job in a free thread. The caller ensures that a thread is free."""
        self.jobs[job] = None
        self.running[job.acknowledger] += 1
        if len(self._threads) < min(len(self.jobs), self.size):
            self._start_thread()
        self._tasks.put(job)

    def finished(self, timeout: float) -> Iterator[Job]:
        """Yield the jobs that have ended. Wait for the first job up to ``timeout`` seconds, or until ``wake``."""
        try:
            job = self._results.get(timeout=timeout) if timeout > 0 else self._results.get_nowait()
            while True:
                if job is not None:
                    del self.jobs[job]
                    self.running[job.acknowledger] -= 1
                    yield job
                job = self._results.get_nowait()
        except queue.Empty:
            return

    def wake(self) -> None:
        """End the wait in ``finished``. May be called from a signal handler or another thread."""
        self._results.put(None)

    def give_up(self, job: Job, judge: Callable[[], list[Outcome]]) -> None:
        """Give up a job that runs too long. It keeps its thread. Another thread calls ``judge`` for its outcomes."""
        with self._lock:
            thread = next((t for t, mine in self._threads.items() if mine is job), None)
            if thread is None or not job.ends([]):
                return  # The job has just ended.
            del self._threads[thread]
            self.hanging[job] = thread
        for delivery in job.deliveries:
            delivery.hold.overdue = delivery not in job.judged

        def end() -> None:
            try:
                job.outcomes = judge()
            except BaseException:  # A retry policy may raise ``SystemExit``.
                logger.exception("handler's outcome unknown: %s", job)
                job.outcomes = [Outcome(d, CANNOT_TELL, overdue=True) for d in job.deliveries]
            self._results.put(job)

        self._start_thread()
        self._tasks.put(end)

    def check_limits(self) -> None:
        """Give up handlers that have run too long, and log handlers that seem to hang. Call no user code here."""
        now = time.monotonic()
        for job in self._started_jobs():
            ran, long = now - job.started, LOG_AFTER_TIMEOUTS * job.handler.visible_ms / 1000
            if ran >= _limit(job):
                stack = job.stack()
                logger.warning(
                    "handler exceeded max_runtime: %s: running for %.1f s (max_runtime is %g s); its stack now:\n%s",
                    job, ran, job.handler.max_runtime, stack,
                )  # fmt: skip
                self.give_up(job, partial(_overdue, job, stack))
            elif job.handler.max_runtime is None and ran >= self._log_at.get(job, long):
                self._log_at[job] = 2 * ran
                logger.warning(
                    "handler still running: %s: for %.1f s; its stack now:\n%s", job, ran, job.stack()
                )
        self._log_at = {job: at for job, at in self._log_at.items() if job in self.jobs}

    def next_limit_in(self) -> float:
        """Return the seconds until the next time limit; infinity if there is none."""
        ends = [job.started + _limit(job) for job in self._started_jobs()]
        return max(min(ends, default=math.inf) - time.monotonic(), 0)

    def _started_jobs(self) -> list[Job]:
        return [job for job in self.jobs if job.started < math.inf and not job.ended]

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
            self._threads[thread] = None
        thread.start()

    def _work(self) -> None:
        me = threading.current_thread()
        try:
            while (task := self._tasks.get()) is not None:
                if not isinstance(task, Job):
                    task()
                    continue
                with self._lock:
                    self._threads[me] = task
                outcomes = call(task)
                with self._lock:
                    in_time = task.ends(outcomes)
                    if in_time:
                        self._threads[me] = None
                    else:
                        self.hanging.pop(task, None)
                if not in_time:
                    logger.warning("handler ended after max_runtime: %s", task)
                    return
                self._results.put(task)
        finally:
            with suppress(Exception):
                connections.close_all()


def _limit(job: Job) -> float:
    limit = job.handler.max_runtime
    return math.inf if limit is None else limit + (CANCEL_GRACE if job.cancels else 0)


def _overdue(job: Job, stack: str) -> list[Outcome]:
    """Return the outcomes of a job that ran too long. Each message that the handler got has failed."""
    error = TimeLimitExceeded(job.handler.max_runtime or 0)
    judged = dict(job.judged)
    given = [delivery for delivery in job.deliveries if delivery not in judged]
    judged |= verdicts_on(job.handler, given, error, f"{describe(error)}\nIts stack then:\n{stack}")
    return [Outcome(delivery, judged[delivery], overdue=delivery in given) for delivery in job.deliveries]
