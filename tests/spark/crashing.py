"""Kill streaming jobs: find their processes by name, choose the moment, and run garbage collection at the same time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from django.db import connection

import django_mqueue
from django_mqueue import publish_many
from django_mqueue.models import Message
from django_mqueue.protocol.retention.garbage_collection import Collector
from tests.support.processes import Worker, wait_until
from tests.support.subscribers import collect, lock_topic
from tests.support.threads import Background
from tests.support.transactions import HeldTransaction
from tests.support.waiting import SPARK_PATIENCE

from .commands import started_by
from .streams import committed, ended, stands_at

SOURCE = Path(django_mqueue.__file__).parent / "spark" / "default_source.py"

DRIVER, JAVA, TASKS, PLANNER = "tests.spark.driver", "java", "pyspark.daemon", "streaming_source_runner"
"""Parts of the command lines of a job's processes.

In this order: the job itself, the JVM (driver and executor), Python's tasks, and the process that plans the batches.
"""

SOON = 4.0
"""Seconds to wait for the moment to kill at, before the lock is released and taken again."""


@dataclass
class Job:
    """The job description for ``driver``."""

    options: dict[str, str]
    checkpoint: str
    target: Path
    sink: str = "files"
    master: str = "local[2,3]"

    @contextmanager
    def run(self, *, every: str = "", sink: str | None = None) -> Iterator[Running]:
        """Run the job. All its processes are killed at the end."""
        modules = self.target / "modules"  # As in the wheel.
        modules.mkdir(exist_ok=True)
        shutil.copy(SOURCE, modules / "pyspark_mqueue.py")
        words = {
            "options": self.options, "checkpoint": self.checkpoint, "target": str(self.target),
            "sink": sink or self.sink, "master": self.master, "every": every,
        }  # fmt: skip
        worker = Worker(
            (json.dumps(words),),
            {"MQUEUE_PASSWORD": str(connection.settings_dict["PASSWORD"]), "PYTHONPATH": str(modules)},
            program=(DRIVER,),
        )
        running = Running(worker, self)
        try:
            yield running
        except BaseException as error:
            error.add_note(worker.output()[-6000:])
            raise
        finally:
            running.kill()
            worker.close()

    def finish(self, timeout: float = SPARK_PATIENCE) -> None:
        """Run until the job has read everything."""
        finish(self.run, timeout)

    def numbers(self) -> list[int]:
        """Return the numbers of all batches in the sink ``files``.

        For ``parquet``, first run the job with the sink ``read``.
        """
        return sorted(
            number for path in self.target.glob("*.json") for number in json.loads(path.read_text())
        )


class EndedByItself(AssertionError):
    """The job ended before the test killed it.

    Spark gives its Python processes ten seconds to start, which is too short on a busy machine.
    """


class Processes:
    """A running program with all its child processes."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def pids(self, what: str = "") -> list[int]:
        """Return the session's processes whose command line contains ``what``, in any process group."""
        return [pid for pid, line in started_by(self.worker.pid).items() if what in line]

    def kill(self, what: str = "") -> int:
        """Send SIGKILL to all matching processes.

        Without ``what``, repeat until none is left. Return how many were killed.
        """
        killed = 0
        while pids := self.pids(what):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            if what:
                return killed
            self.worker.process.poll()
            threading.Event().wait(0.01)
        self.worker.process.poll()
        return killed

    def send(self, number: signal.Signals) -> None:
        """Send the signal to all processes."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def until(self, condition: Callable[[], object], what: str, timeout: float = SPARK_PATIENCE) -> None:
        """Wait for the condition while the job runs. Fail if the job ends first. Spark may start slowly."""

        def over() -> bool:
            return bool(condition()) or not self.worker.running

        wait_until(over, what, seconds=timeout)
        if not condition():
            raise EndedByItself(f"it ended before {what}")

    def kill_when(
        self,
        condition: Callable[[], bool],
        what: str,
        *,
        locked: str = "",
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        """Stop all processes when the condition is true, and kill them if it is still true then.

        ``locked``: hold this topic's row lock meanwhile, so that no process can register, move or leave. If the job
        waits for that lock too early, release the lock and try again. ``prepare`` is called before each try.
        """

        def caught() -> bool:
            if not self.worker.running:
                raise EndedByItself(f"it ended before {what}")
            prepare()
            with HeldTransaction(lambda: lock_topic(locked)) if locked else nullcontext():
                if not _soon(condition):
                    return False
                self.send(signal.SIGSTOP)
                if condition():
                    self.kill()
                    return True
            self.send(signal.SIGCONT)
            return False

        wait_until(caught, what, seconds=SPARK_PATIENCE, every=0.001)


At = TypeVar("At", bound=Processes)


class Running(Processes):
    """A running streaming job."""

    def __init__(self, worker: Worker, job: Job) -> None:
        super().__init__(worker)
        self.job = job

    def has_committed(self, batches: int) -> None:
        """Wait until ``batches`` more batches are durable."""
        goal = committed(self.job.checkpoint) + batches
        self.until(lambda: committed(self.job.checkpoint) >= goal, f"{batches} more batches are durable")

    def kill_between_sink_and_group(
        self, topic: str, group: str, prepare: Callable[[], object] = lambda: None
    ) -> None:
        """Kill all processes when a batch is durable, but its group has not moved.

        The group waits for the topic's lock. ``prepare`` publishes messages for the batch, if there may be none.
        """

        def is_behind() -> bool:
            batch = committed(self.job.checkpoint)
            return batch >= 0 and stands_at(group, topic) < ended(self.job.checkpoint, batch, topic)

        self.kill_when(
            is_behind, "a batch is durable, and the group behind it", locked=topic, prepare=prepare
        )


def finish(
    run: Callable[[], AbstractContextManager[Processes]], timeout: float = SPARK_PATIENCE, tries: int = 3
) -> None:
    """Run to the end. Run again after a failure, as a scheduler does."""
    for left in reversed(range(tries)):
        with run() as running:
            code = running.worker.wait(timeout)
            if code == 0:
                return
            assert left, f"it failed with {code} each time:\n{running.worker.output()[-4000:]}"


def crash(run: Callable[[], AbstractContextManager[At]], way: Callable[[At], object], tries: int = 4) -> None:
    """Run and do ``way`` to the processes. Try again if the run ended by itself before."""
    for left in reversed(range(tries)):
        try:
            with run() as running:
                way(running)
                return
        except EndedByItself:
            if not left:
                raise


def _soon(condition: Callable[[], bool]) -> bool:
    """Return True if the condition becomes true within a few seconds."""
    with suppress(AssertionError):
        wait_until(condition, "", seconds=SOON, every=0.005)
        return True
    return False


@contextmanager
def collecting(topic: str) -> Iterator[None]:
    """Run garbage collection all the time, as workers do."""
    stop = threading.Event()

    def work() -> None:
        collector = Collector("default", topic)
        while not stop.wait(0.02):
            while collector.collect_page() and not stop.is_set():
                pass

    thread = Background(work).start()
    try:
        yield
    finally:
        stop.set()
        thread.result()


def is_empty(topic: str) -> bool:
    """Collect the topic's garbage, and return True if no message is left."""
    collect(topic)
    return not Message.objects.filter(topic=topic).exists()


@contextmanager
def publishing(topic: str, rows: int, chunk: int = 5000, every: float = 0.4) -> Iterator[None]:
    """Publish a quarter at once and the rest in chunks."""
    publish_many(topic, range(rows // 4))
    stop = threading.Event()

    def work() -> None:
        for first in range(rows // 4, rows, chunk):
            publish_many(topic, range(first, min(first + chunk, rows)))
            stop.wait(every)

    thread = Background(work).start()
    try:
        yield
    finally:
        stop.set()  # Publish the rest without pauses.
        thread.result()
