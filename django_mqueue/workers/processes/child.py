"""A child process of the supervisor: it runs one worker, and reports how the worker ended."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Literal

from ... import tracing
from ...exceptions import MQueueError, TooManyHanging
from ...store.connection import session
from ..registry import Handler
from ..runner import Runner, RunOptions, WorkerContext
from .memory import resident_mib

logger = logging.getLogger("django_mqueue")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
MEMORY_CHECK_INTERVAL = 1.0
"""Seconds between two checks of the memory."""


@dataclass(frozen=True)
class Recycling:
    """The limits after which a child process is replaced; None: no limit. ``max_memory`` is in MiB."""

    max_messages: int | None = None
    max_memory: int | None = None


@dataclass(frozen=True)
class Report:
    """The end of a child process.

    - ``done``: the drain is over, or a limit of ``RunOptions`` is reached.
    - ``stopped``: it received SIGTERM.
    - ``recycled``: a limit of ``Recycling`` is reached.
    - ``hanging``: too many handlers hang.
    - ``failed``: an error that would recur in another process.

    ``started``: number of messages given to handlers. ``left``: as in ``Runner``.
    """

    end: Literal["done", "stopped", "recycled", "hanging", "failed"]
    reason: str
    counts: Counter[str]
    started: int
    left: int


class Watch(threading.Thread):
    """Stops the worker if the supervisor has ended, or if the process uses too much memory.

    ``supervisor``: the end of a pipe whose other end only the supervisor has open. So the pipe
    ends when the supervisor ends, even by SIGKILL. ``max_memory``: in MiB.
    """

    def __init__(self, runner: Runner, supervisor: Connection, max_memory: int | None) -> None:
        super().__init__(name="mqueue-watch", daemon=True)
        self._runner, self._supervisor, self._max_memory = runner, supervisor, max_memory
        self.memory_used = 0.0
        """The memory in MiB if it was too much, else 0."""

    def run(self) -> None:
        interval = None if self._max_memory is None else MEMORY_CHECK_INTERVAL
        while not wait([self._supervisor], interval):
            used = resident_mib()
            # Each process handles a message first: a limit that is too low makes the work slow, but does not stop it.
            if self._max_memory is not None and used > self._max_memory and self._runner.started:
                self.memory_used = used
                break
        else:
            logger.error("worker process stops: its supervisor has ended")
        self._runner.stop()


def run(
    handlers: Sequence[Handler],
    options: RunOptions,
    recycling: Recycling,
    supervisor: Connection,
    reports: Connection,
    worker_context: WorkerContext,
) -> None:
    """Run a worker, and send a ``Report``. No report is sent if the process crashes.

    The caller has blocked ``STOP_SIGNALS``, so that none arrives before this process can handle it. SIGTERM stops the
    worker, also if it comes twice: a service manager may send it to all processes of a service, and the supervisor
    sends it again. SIGINT is ignored: a terminal sends it to all processes, and the supervisor then sends SIGTERM.
    """
    runner = Runner(handlers, options, worker_context)
    asked = threading.Event()

    def on_terminate(number: int, frame: object) -> None:
        asked.set()
        runner.stop()

    signal.signal(signal.SIGTERM, on_terminate)
    signal.signal(signal.SIGINT, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    watch = Watch(runner, supervisor, recycling.max_memory)
    watch.start()
    report = _report(runner, watch, asked, recycling)
    tracing.flush()
    if report is not None:
        with suppress(OSError):  # The supervisor may have ended.
            reports.send(report)
    if runner.hanging:  # Python would wait for some of their threads.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0 if report else 1)
    if report is None:
        sys.exit(1)


def _report(runner: Runner, watch: Watch, asked: threading.Event, recycling: Recycling) -> Report | None:
    """Run the worker, and return its report. Log an error that may not recur in a new process; return None."""

    def report(end: Literal["done", "stopped", "recycled", "hanging", "failed"], reason: str) -> Report:
        return Report(end, reason, runner.counts, runner.started, runner.left)

    try:
        with session.raises_not_migrated(runner.using):
            runner.run()
    except TooManyHanging as error:
        return report("hanging", str(error))
    except MQueueError as error:
        return report("failed", str(error))
    except Exception:
        logger.exception("worker process failed")
        return None
    if recycling.max_messages is not None and runner.started >= recycling.max_messages:
        return report("recycled", f"handled {runner.started} messages")
    if watch.memory_used:
        return report("recycled", f"uses {watch.memory_used:.0f} MiB, more than {recycling.max_memory} MiB")
    if asked.is_set():
        return report("stopped", "received SIGTERM")
    return report("done", "nothing left to do, or a limit reached")
