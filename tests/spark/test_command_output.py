"""Errors are one line, from any process, and progress has a form that suits the output. No Spark here."""

from __future__ import annotations

import io
import json

import pytest
from django.db import OperationalError

from django_mqueue.exceptions import LogGap
from django_mqueue.spark import explained
from django_mqueue.spark.cli.output import Output, Progress
from django_mqueue.spark.cli.verb import BadArguments

from .verbs import failing, main


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (LogGap("topic 'orders': it is gone"), 1, "topic 'orders': it is gone"),
        (BadArguments("--to and --from are one place"), 2, "--to and --from are one place"),
        (OperationalError(2013, "Lost connection"), 1, "the database: Lost connection"),
        (PermissionError(13, "Permission denied", "/archive"), 1, "Permission denied: '/archive'"),
    ],
)
def test_an_error_is_one_line(
    error: Exception, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(run=failing(error)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("python -m django_mqueue.spark try: ")
    assert said in err
    assert err.count("\n") == 1


def test_a_mistake_of_ours_is_shown_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        main(run=failing(ZeroDivisionError()))


def test_where_an_error_comes_from_is_told_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("--traceback", run=failing(LogGap("it is gone"))) == 1
    assert "Traceback" in capsys.readouterr().err


class SparkError(Exception):
    """Stands for an error of PySpark's."""

    __module__ = "pyspark.errors.exceptions.captured"


WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "django_mqueue/spark/connecting.py", line 102, in connected
    raise NoConnection(_explained(how, error)) from error
{0}: {1}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""
JAVA = """An error occurred while calling o61.parquet.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.jobAbortedError(QueryExecutionErrors.scala:651)
Caused by: java.io.IOException: No FileSystem for scheme "s4"
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            WORKER.format("django_mqueue.spark.errors.NoConnection", "db cannot be reached"),
            "db cannot be reached",
        ),
        (WORKER.format("django_mqueue.exceptions.LogGap", "3 are gone"), "3 are gone"),
        (
            WORKER.format("pyarrow.lib.ArrowInvalid", "no"),
            "Spark: An exception was thrown from the Python worker.",
        ),
        (
            WORKER.format("ModuleNotFoundError", "No module named 'x'"),
            "Spark: ModuleNotFoundError: No module named 'x'",
        ),
        (JAVA, 'Spark: IOException: No FileSystem for scheme "s4"'),
        ("[CONNECT_URL_NOT_SET] Say where.\nMore", "Spark: [CONNECT_URL_NOT_SET] Say where."),
        ("", "Spark: SparkError"),
    ],
)
def test_what_comes_from_spark_is_told_in_a_line(text: str, said: str) -> None:
    """If the text contains an error of this package, from any process, that error is reported."""
    assert (explained(SparkError(text)) or "").startswith(said)


def test_nothing_that_is_said_commands_the_terminal() -> None:
    """Control characters are escaped. JSON keeps them as escape sequences."""
    odd = "\x1b]0;mine\x07\x1b[2J\r\x7f\x9b31m\u202e"
    assert (explained(LogGap(f"topic '{odd}' is gone")) or "").isprintable()
    out, err = io.StringIO(), Terminal()
    output = Output(out, err)
    output.tell(f"topics: {odd}")
    output.say(f"archived: {odd}")
    output.tell(json.dumps(odd, ensure_ascii=False))
    told, as_json = out.getvalue().splitlines()
    assert told.isprintable()
    assert err.getvalue().rstrip("\n").isprintable()
    assert json.loads(as_json) == odd


def test_progress_is_lines_where_nobody_looks() -> None:
    stream = io.StringIO()
    with Output(err=stream).progress("messages") as progress:
        progress(400, 1000)
        progress(1000, 1000)
    assert stream.getvalue().startswith("1,000 of 1,000 (100%) messages, ")
    assert stream.getvalue().count("\n") == 1
    stream = io.StringIO()
    progress = Progress(Output(err=stream), "messages", every=0)
    progress(7)
    progress.end()
    assert stream.getvalue().startswith("7 messages, ")
    assert stream.getvalue().count("\n") == 1


def test_the_rate_is_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier run has stored a million messages."""
    stream, now = io.StringIO(), 0.0
    monkeypatch.setattr("django_mqueue.spark.cli.output.time.monotonic", lambda: now)
    progress = Progress(Output(err=stream), "messages", every=5)
    progress(1_000_000)
    now = 10.0
    progress(1_001_000)
    assert stream.getvalue() == "1,001,000 messages, 100/s\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal() -> None:
    pytest.importorskip("tqdm")
    stream = Terminal()
    output = Output(err=stream)
    with output.progress("messages") as progress:
        progress(4, 10)
        output.say("between")
    assert "4.00/10.0" in stream.getvalue()
    assert "between\n" in stream.getvalue()
