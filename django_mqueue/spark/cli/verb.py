"""A verb, which is a subcommand of the command, and the job that it receives."""

from __future__ import annotations

import json
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...exceptions import MQueueError
from .output import Output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class BadArguments(MQueueError):
    """The arguments contradict each other, or ask for something that does not exist. The exit code is 2."""


class Stopped(MQueueError):
    """The first signal ended a verb before it had its result.

    The exit code is 0. For a verb with ``answers``, it is 128 plus the number of the signal.
    """


class Job:
    """One run of a verb.

    * ``options``: the connection options of ``format("mqueue")``, without the password.
    * ``arguments``: the verb's arguments, and the command's.
    * ``stopping``: set by the first SIGTERM or SIGINT. Verbs except ``erase`` check it between steps, and then end.
    * ``tell``, ``say`` and ``progress``: see ``Output``.
    """

    def __init__(
        self,
        arguments: Namespace,
        options: dict[str, str],
        start: Callable[[], SparkSession],
        output: Output,
        stopping: threading.Event,
    ) -> None:
        self.arguments, self.options, self.stopping, self._start = arguments, options, stopping, start
        self.tell, self.say, self.progress = output.tell, output.say, output.progress

    @cached_property
    def spark(self) -> SparkSession:
        """Return the session. The first call starts it. Raises ``NoSpark`` or ``Stopped``."""
        return self._start()

    def answer(self, found: Any, lines: Iterable[str]) -> None:
        """Print the result: with ``--json`` the dataclass or the dataclasses, otherwise the lines."""
        if self.arguments.json:
            content = [asdict(each) for each in found] if isinstance(found, Sequence) else asdict(found)
            self.tell(json.dumps(_plain(content), ensure_ascii=False, indent=2))
        else:
            for line in lines:
                self.tell(line)


def _plain(value: Any) -> Any:
    """Return the value with times as text, also in the keys of mappings."""
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.isoformat() if isinstance(value, datetime) else value


@dataclass(frozen=True)
class Verb:
    """A verb of the command.

    * ``arguments``: adds the verb's own arguments to its parser.
    * ``run``: runs the verb and returns the exit code. ``program.run`` turns errors into lines and exit codes.
    * ``light``: Java only coordinates the work, so it uses only its quick compiler.
    * ``answers``: users expect the verb's result from this run, so a stopped run has failed. Without this, the next run
      continues the work of a stopped run.
    """

    name: str
    help: str
    arguments: Callable[[ArgumentParser], Any]
    run: Callable[[Job], int]
    light: bool = False
    answers: bool = False
