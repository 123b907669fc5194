"""The definition of a verb, and the job that it receives."""

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
    """The arguments contradict each other, or ask for something that does not exist. The exit code is 2."""


class Stopped(MQueueError):
    """The first signal ended a verb before it had its result.

    If the verb gives an answer, the exit code is 128 plus the number of the signal.
    """


class Job:
    """One run of a verb.

    * ``options``: how ``format("mqueue")`` reaches the database, without the password.
    * ``arguments``: the verb's arguments, and the command's.
    * ``stopping``: set by the first SIGTERM or SIGINT. A verb checks it between steps, and ends with what is done.
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
        """Return the session. The first call starts it. Raises ``NoSpark``."""
        if self._spark is None:
            self._spark = self._start()
        return self._spark

    def say(self, text: str) -> None:
        """Write a line for the user to stderr."""
        self._output.say(text)

    def tell(self, text: str) -> None:
        """Write the result to stdout."""
        self._output.tell(text)

    def progress(self, total: int | None, unit: str) -> AbstractContextManager[Progress]:
        """Report progress: ``with job.progress(1000, "messages") as done: done.update(10)``.

        This shows a bar on a terminal, and otherwise writes a line every few seconds. ``total``: None if it is unknown.
        """
        return self._output.progress(total, unit)

    @contextmanager
    def counted(self, unit: str) -> Iterator[Callable[[int, int], None]]:
        """Yield a function that reports progress by calls with (done, total).

        The bar starts with the first call.
        """
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
    """A verb of the command.

    * ``arguments``: adds the verb's own arguments to its parser.
    * ``run``: runs the verb and returns the exit code. This package's errors become one line, and the exit code is 1.
    * ``light``: Spark's Java only coordinates the work, so it is started with little cost.
    * ``answers``: users run the verb for its output. Without this, the next run continues the work of a stopped run.
    """

    name: str
    help: str
    arguments: Callable[[ArgumentParser], Any]
    run: Callable[[Job], int]
    light: bool = False
    answers: bool = False
