"""What a verb is, and what it is given."""

from __future__ import annotations

import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...exceptions import MQueueError
from .output import Output, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class BadArguments(MQueueError):
    """The arguments of the command contradict each other, or ask for what there is not: the exit code is 2."""


class Stopped(MQueueError):
    """The first signal has ended a verb before there was what it was asked for.

    Of a verb that answers, the exit code says so: 128 and the signal's number.
    """


class Job:
    """One run of a verb. ``options``: how ``format("mqueue")`` reaches the database, never with the password.

    ``arguments`` are the verb's own, and those of the command. ``stopping`` is set by the first SIGTERM or SIGINT:
    a verb looks at it between steps, and ends with what is done.
    """

    def __init__(
        self,
        arguments: Namespace,
        options: dict[str, str],
        start: Callable[[], SparkSession],
        output: Output | None = None,
        stopping: threading.Event | None = None,
    ) -> None:
        self.arguments, self.options = arguments, dict(options)
        self.stopping = threading.Event() if stopping is None else stopping
        self._start, self._output = start, Output() if output is None else output
        self._spark: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        """The session, started when it is first asked for. Raises ``NoSpark``."""
        if self._spark is None:
            self._spark = self._start()
        return self._spark

    def say(self, text: str) -> None:
        """A line for who watches: on stderr."""
        self._output.say(text)

    def tell(self, text: str) -> None:
        """The result: on stdout."""
        self._output.tell(text)

    def progress(self, total: int | None, unit: str) -> AbstractContextManager[Progress]:
        """``with job.progress(1000, "messages") as done: done.update(10)``: a bar on a terminal, else a line at times.

        ``total`` None: nobody knows.
        """
        return self._output.progress(total, unit)

    @contextmanager
    def counted(self, unit: str) -> Iterator[Callable[[int, int], None]]:
        """For what tells its progress by calls with (done, of all), from the first of them on."""
        bar: list[Progress] = []
        reached = 0
        with ExitStack() as stack:

            def told(done: int, total: int) -> None:
                nonlocal reached
                if not bar:
                    bar.append(stack.enter_context(self.progress(total, unit)))
                bar[0].update(done - reached)
                reached = done

            yield told


@dataclass(frozen=True)
class Verb:
    """``arguments`` adds the verb's own to its parser; ``run`` returns the exit code.

    Errors of the queue's own that ``run`` raises become one line and exit code 1. ``light``: whether Spark's
    Java only says who does what: then it is started so that it costs little. ``answers``: whether
    it is run for what it says, and not for what it does, with which the next run would go on.
    """

    name: str
    help: str
    arguments: Callable[[ArgumentParser], Any]
    run: Callable[[Job], int]
    light: bool = False
    answers: bool = False
