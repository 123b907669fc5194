"""The thread pool in which a worker's handlers run. A thread that hangs is given up and replaced."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType

from django.db import connections

from ..protocol.acknowledging.acknowledger import Acknowledger
from .executor import CANNOT_TELL, call
from .jobs import Job, Outcome

logger = logging.getLogger("django_mqueue")

HANGING_LEAST = 4


class HandlerPool:
    """Up to ``size`` threads that work, plus the threads that hang.

    ``jobs``: the running jobs. ``hanging``: jobs that were given up and still run. The threads are daemons, so they do
    not keep the process from ending.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.jobs: dict[Job, None] = {}
        self.running: Counter[Acknowledger] = Counter()
        self.hanging: dict[Job, threading.Thread] = {}
        self._tasks: queue.SimpleQueue[Job | Callable[[], None] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: dict[threading.Thread, Job | None] = {}
        self._lock = threading.Lock()
        self._count = 0

    @property
    def most_hanging_exceeded(self) -> int:
        """Return the number of hanging jobs at which the process must stop.

        Each hanging job keeps a thread, memory and database connections.
        """
        return max(self.size, HANGING_LEAST)

    def start(self, job: Job) -> None:
        """Run a job in a free thread. The caller ensures that a thread is free."""
        self.jobs[job] = None
        self.running[_of(job)] += 1
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
                    self.running[_of(job)] -= 1
                    yield job
                job = self._results.get_nowait()
        except queue.Empty:
            return

    def wake(self) -> None:
        """End the wait in ``finished``. May be called from a signal handler or another thread."""
        self._results.put(None)

    def give_up(self, job: Job, judge: Callable[[], list[Outcome]]) -> None:
        """Give up a job that runs too long. It keeps its thread; another thread gets its outcomes from ``judge``."""
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
            except BaseException:  # A retry policy may exit.
                logger.exception("cannot determine the outcome of %s", job)
                job.outcomes = [Outcome(d, CANNOT_TELL, overdue=True) for d in job.deliveries]
            self._results.put(job)

        self._start_thread()
        self._tasks.put(end)

    def __enter__(self) -> HandlerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all threads except the hanging threads."""
        with self._lock:
            threads = list(self._threads)
        for _ in threads:
            self._tasks.put(None)
        for thread in threads:
            thread.join()

    def _start_thread(self) -> None:
        self._count += 1
        thread = threading.Thread(target=self._work, name=f"mqueue-handler_{self._count}", daemon=True)
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
                    logger.warning("%s: its handler has ended after the worker stopped waiting for it", task)
                    return
                self._results.put(task)
        finally:
            with suppress(Exception):
                connections.close_all()


def _of(job: Job) -> Acknowledger:
    return job.deliveries[0].hold.acknowledger
