"""The supervisor: it runs workers in child processes, replaces the dead ones, and sums up what they report."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess

from django.db import connections

from ... import conf
from ...exceptions import MQueueError
from ...policy.backoff import RestartBackoff
from ...policy.names import SUBSCRIBER_MAX, check_name
from ...service.subscription import default_name, refuse_in_transaction
from ..liveness import LivenessFiles
from ..registry import Handler
from ..runner import RunOptions, WorkerContext
from . import child
from .child import STOP_SIGNALS, Recycling, Report
from .memory import resident_mib

logger = logging.getLogger("django_mqueue")

POLL_INTERVAL = 1.0
"""Maximum seconds between two checks of all children. A process that a handler forked may keep a dead child's sentinel
open."""
RECYCLING_JITTER = 0.1
"""``max_messages`` is reduced at random by up to this part, so that the children are not recycled together."""


@dataclass
class Slot:
    """The place of one child process. A replacement has the same name, so it frees the old leases at once."""

    number: int
    name: str
    messages_left: float
    """The number of messages that the children of this place may still start."""
    backoff: RestartBackoff = field(default_factory=RestartBackoff)
    start_at: float = -math.inf
    started_at: float = -math.inf
    process: ForkProcess | None = None
    reports: Connection | None = None
    asked: bool = False
    """The child was asked to stop."""


class Supervisor:
    """Runs ``processes`` workers in child processes. It has the same interface as ``Runner``.

    Limits in ``options`` apply to each child, except ``max_seconds``. The names of the children are ``NAME-1``,
    ``NAME-2`` and so on. ``counts``: settled messages by verb, of all children that have reported.

    Raises ``MQueueError`` if the system cannot fork, and ``ValueError`` for an invalid name.
    """

    def __init__(
        self,
        handlers: Sequence[Handler],
        options: RunOptions,
        processes: int,
        recycling: Recycling,
        worker_context: WorkerContext = lambda name: nullcontext(),
    ) -> None:
        if not hasattr(os, "fork"):
            raise MQueueError(
                "child processes need os.fork, which Windows does not have: start several workers instead"
            )
        self.handlers, self.options, self.recycling = handlers, options, recycling
        self._worker_context, self._liveness = worker_context, LivenessFiles(options.liveness_file, processes)
        self.using = conf.database(options.using)
        self.counts: Counter[str] = Counter()
        self.left = 0
        base = options.name or default_name()
        check_name("name", f"{base}-{processes}", SUBSCRIBER_MAX)
        most = math.inf if options.max_messages is None else options.max_messages
        self._slots = [Slot(number, f"{base}-{number}", most) for number in range(1, processes + 1)]
        self._stopping = False
        self._deadline = math.inf
        self._error = ""
        # Only the supervisor keeps the second end open: see ``child.Watch``.
        self._watched, self._alive = multiprocessing.Pipe(duplex=False)

    def stop(self) -> None:
        """Let all children finish their running handlers, and stop. May be called from a signal handler."""
        self._stopping = True
        for slot in self._slots:
            if slot.process is not None and not slot.asked:
                slot.asked = True
                slot.process.terminate()

    def kill(self) -> None:
        """End all children at once."""
        for slot in self._slots:
            if slot.process is not None:
                slot.process.kill()

    def run(self) -> None:
        """Work until stopped, drained, or one of the limits is reached.

        Raises ``MQueueError`` if a child has failed with an error that would recur in its replacement.
        """
        refuse_in_transaction(self.using, "run consumers")
        self._check_memory()
        most = self.options.max_seconds
        self._deadline = math.inf if most is None else time.monotonic() + most
        with self._liveness:
            self._supervise()
        if self._error:
            raise MQueueError(self._error)

    def _supervise(self) -> None:
        """Start children, and replace children that die, until no child is left to start."""
        try:
            while self._slots:
                self._start_due()
                self._liveness.update([slot.number for slot in self._slots])
                self._wait()
                for slot in list(self._slots):
                    if slot.process is not None and slot.process.exitcode is not None:
                        self._ended(slot, slot.process)
        finally:
            self.stop()
            for slot in self._slots:
                if slot.process is not None:
                    slot.process.join()

    def _check_memory(self) -> None:
        limit, used = self.recycling.max_memory, resident_mib()
        if limit is not None and used >= limit:
            raise MQueueError(
                f"--max-memory-per-child is {limit} MiB, and this process uses {used:.0f} MiB before it handles its"
                " first message: give a limit above that"
            )

    def _start_due(self) -> None:
        """Start the children that are due. Remove the places that need no other child."""
        for slot in [slot for slot in self._slots if slot.process is None]:
            now = time.monotonic()
            if self._stopping or now >= self._deadline:
                self._slots.remove(slot)
            elif now >= slot.start_at:
                slot.started_at = now
                try:
                    self._start(slot)
                except OSError as error:
                    slot.start_at = now + (delay := slot.backoff.wait_after(0))
                    logger.error(
                        "worker process cannot start: %s: %s; next try in %.1f s", slot.name, error, delay
                    )
        if self._stopping:
            self.stop()  # A signal may have arrived while a child was starting.

    def _start(self, slot: Slot) -> None:
        """Fork a child. A connection that two processes have open would break, so none may be open now."""
        recycling = self._with_jitter()
        remaining = self._deadline - time.monotonic()
        options = replace(
            self.options,
            name=slot.name,
            max_messages=_limit(min(slot.messages_left, recycling.max_messages or math.inf)),
            max_seconds=None if remaining == math.inf else max(remaining, 0),
            liveness_file=self._liveness.of_child(slot.number),
        )
        reader, writer = multiprocessing.Pipe(duplex=False)
        with writer:
            process = multiprocessing.get_context("fork").Process(
                target=self._run_child, args=(options, recycling, writer), name=slot.name
            )
            connections.close_all()
            before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
            try:
                process.start()
                slot.process, slot.reports, slot.asked = process, reader, False
                self._liveness.started(slot.number)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        logger.info("worker process started: %s (pid %s)", slot.name, process.pid)

    def _run_child(self, options: RunOptions, recycling: Recycling, reports: Connection) -> None:
        """Run in the child: close what only the supervisor uses, and work."""
        self._alive.close()
        for slot in self._slots:
            if slot.reports is not None:
                slot.reports.close()
        child.run(self.handlers, options, recycling, self._watched, reports, self._worker_context)

    def _with_jitter(self) -> Recycling:
        most = self.recycling.max_messages
        if most is None:
            return self.recycling
        return replace(self.recycling, max_messages=most - random.randint(0, int(most * RECYCLING_JITTER)))

    def _wait(self) -> None:
        """Wait until a child ends, or the next is due to start."""
        running = [slot.process.sentinel for slot in self._slots if slot.process is not None]
        next_start = min((slot.start_at for slot in self._slots if slot.process is None), default=math.inf)
        wait(running, max(min(next_start - time.monotonic(), POLL_INTERVAL), 0))

    def _ended(self, slot: Slot, process: ForkProcess) -> None:
        """Add the counts of a child that has ended, and decide whether to start a replacement."""
        code, lived = process.exitcode or 0, time.monotonic() - slot.started_at
        report = _received(slot.reports)
        child = f"{slot.name} (pid {process.pid})"
        slot.process = slot.reports = None
        process.close()
        if report is not None:
            self.counts += report.counts
            slot.messages_left -= report.started
            self.left = report.left  # The child that ends last knows what is left.
        if report is None or report.end == "hanging":
            reason = _in_words(code) if report is None else report.reason
            delay = slot.backoff.wait_after(lived)
            slot.start_at = time.monotonic() + delay
            is_done = slot.messages_left <= 0
            is_last = self._stopping or is_done or slot.start_at >= self._deadline
            then = "" if is_last else f"; another starts in {delay:.1f} s"
            logger.error(
                "worker process died: %s: %s%s", child, reason, then, extra=_fields("worker_died", slot)
            )
            if is_done:
                self._slots.remove(slot)
        elif report.end == "failed":
            fields = _fields("worker_failed", slot)
            logger.error("worker process failed, all stop: %s: %s", child, report.reason, extra=fields)
            self._error = self._error or report.reason
            self._slots.remove(slot)
            self.stop()
        elif report.end == "done" or slot.messages_left <= 0 or self._stopping:
            logger.info("worker process ended: %s: %s", child, report.reason)
            self._slots.remove(slot)
        else:
            fields = _fields("worker_replaced", slot)
            logger.info("worker process replaced: %s: %s", child, report.reason, extra=fields)
            slot.start_at = -math.inf


def _fields(event: str, slot: Slot) -> dict[str, str]:
    """Return fields for the ``extra`` of a log record."""
    return {"mqueue_event": event, "mqueue_subscriber": slot.name}


def _limit(most: float) -> int | None:
    return None if most == math.inf else int(most)


def _received(reports: Connection | None) -> Report | None:
    """Return the report of a child that has ended; None if it has crashed."""
    if reports is None:
        return None
    with reports, suppress(EOFError, OSError):
        if reports.poll():
            report: Report = reports.recv()
            return report
    return None


def _in_words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):  # Most real-time signals have no name.
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
