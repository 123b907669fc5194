"""Run a verb (a subcommand). Start Spark when the verb needs it, end it with the run, and handle signals and errors."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from ..errors import OptionError
from ..explaining import explained
from ..launching import check_pyspark, register, session, submitted
from .arguments import connection_options, parser_of
from .ending import end, end_now, is_caused_by_java_end
from .output import Output
from .verb import BadArguments, Job, Stopped, Verb
from .verbs import VERBS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = "python -m django_mqueue.spark"
SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LOG, _JAVA_OPTIONS = Path(__file__).with_name("log4j2.properties"), "spark.driver.extraJavaOptions"
_LIGHT = "-XX:TieredStopAtLevel=1"
"""Java uses only its quick compiler. The other compiler is worth its cost only if many rows pass through Java."""

_NO_JAVA = (
    "Spark's Java process ended during the work. Run this again; if it lacked memory, with a larger --memory"
)
_AT_START = "stopped while Spark was starting: nothing was done"
_STOPPING = b"stopping after the current step; a second signal stops at once\n"


def main(arguments: Sequence[str] | None = None, verbs: Sequence[Verb] = VERBS) -> int:
    """Run ``python -m django_mqueue.spark`` and return the exit code. ``arguments``: without the program's name."""
    parsed = parser_of(PROGRAM, verbs).parse_args(arguments)
    output = Output()

    def fail(line: str) -> None:
        output.say(f"{PROGRAM} {parsed.verb}: {line}")

    try:
        options = connection_options(parsed)
    except BadArguments as error:
        fail(str(error))
        return 2
    return run(parsed, options, output, fail)


def run(arguments: Namespace, options: dict[str, str], output: Output, fail: Callable[[str], None]) -> int:
    """Return the exit code of the verb, 1 or 2 after ``fail(line)``, or the code of a stopped run (see ``Stopped``).

    An error that is a bug of this package is raised.
    """
    spark_run = Run(arguments)

    def stopped(line: str) -> int:
        """Report the stop, and return the exit code.

        It is an error only if users expect the result from this run. For other verbs the next run continues the work.
        """
        if not arguments.answers:
            output.say(line)
            return 0
        fail(line)
        return 128 + (spark_run.number or signal.SIGINT)

    with spark_run.signals_handled():
        try:
            _check_launching(arguments)
            return int(arguments.run(Job(arguments, options, spark_run.session, output, spark_run.stopping)))
        except Stopped as error:
            return stopped(str(error))
        except Exception as error:
            line = _NO_JAVA if is_caused_by_java_end(error) else explained(error)
            if line is None:
                raise
            if getattr(arguments, "traceback", False):
                traceback.print_exc(file=sys.stderr)
            fail(line)
            return 2 if isinstance(error, BadArguments | OptionError) else 1
        except KeyboardInterrupt:  # PySpark's own handler of SIGINT, while Spark starts
            if spark_run.number is None:
                return stopped(_AT_START)
            fail(_AT_START)
            return 128 + signal.SIGINT
        finally:
            if spark_run.begun:
                end(spark_run.spark)


class Run:
    """Starts Spark for one run, and handles the signals of the run.

    The first SIGTERM or SIGINT sets ``stopping``, so that the run stops after its current step. The second one ends the
    run at once. ``number``: the number of the first signal. ``begun``: whether this run has started Spark.
    """

    def __init__(self, arguments: Namespace) -> None:
        self._arguments = arguments
        self.begun = False
        self.spark: SparkSession | None = None
        self.stopping = threading.Event()
        self.number: int | None = None

    def session(self) -> SparkSession:
        """Return a session. Raises ``Stopped`` if the first signal came while Spark was starting."""
        try:
            found = self.start()
        except Exception as error:  # The same signal may have ended Java.
            if self.stopping.is_set():
                raise Stopped(_AT_START) from error
            raise
        finally:
            self._listen()  # Spark replaces the handler of SIGINT.
        if self.stopping.is_set():
            raise Stopped(_AT_START)
        return found

    def start(self) -> SparkSession:
        """Return a session. A session that already runs in this process belongs to other code, and is not ended."""
        check_pyspark()
        from pyspark.sql import SparkSession

        if (running := SparkSession.getActiveSession()) is not None:
            register(running)
            return running
        self.begun = True
        given = self._arguments
        self.spark = session(
            f"mqueue {given.verb}",
            master=given.master or "local[*]",
            memory=given.memory or "1g",
            config=_config(given),
            remote=given.remote,
        )
        return self.spark

    @contextmanager
    def signals_handled(self) -> Iterator[None]:
        """Handle signals in this block, and restore the old handlers at the end."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        self._listen()
        try:
            yield
        finally:
            if _in_main_thread():
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _listen(self) -> None:
        if _in_main_thread():
            for number in SIGNALS:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            end_now(self.spark, 128 + number)
        self.number = number
        self.stopping.set()
        os.write(2, _STOPPING)  # not to a Python stream: the signal may interrupt its write


def _in_main_thread() -> bool:
    """Return whether this is the main thread: Python allows handlers of signals only there."""
    return threading.current_thread() is threading.main_thread()


def _config(arguments: Namespace) -> dict[str, str]:
    """Return Spark's configuration: the settings of ``--conf``, with this run's log level and Java options."""
    given = dict(arguments.conf)
    if arguments.remote:
        return given
    if submitted():
        return {"spark.log.level": arguments.spark_log, **given}
    ours = f'"-Dlog4j2.configurationFile={_LOG}" -Dmqueue.log={arguments.spark_log}'
    light = _LIGHT if arguments.light else ""
    return {**given, _JAVA_OPTIONS: " ".join(filter(None, [ours, light, given.get(_JAVA_OPTIONS)]))}


def _check_launching(arguments: Namespace) -> None:
    given = {name: f"--{name}" for name in ("master", "memory", "remote") if getattr(arguments, name)}
    if "remote" in given and arguments.remote == os.environ.get("SPARK_REMOTE"):
        given["remote"] += " (from the environment's SPARK_REMOTE)"
    first = next(iter(given), "")
    if submitted() and given:
        raise BadArguments(
            f"{given[first]}: spark-submit has already started Spark. Give this option to spark-submit, before the"
            " program's name"
        )
    if "remote" in given and len(given) > 1:
        raise BadArguments(
            f"{given['remote']}: the Spark Connect server sets its own {first}: leave out --{first}"
        )
