"""Exit codes after the first signal.

Return 0 if the next run continues the work, and 128 plus the signal if the verb must answer.
"""

from __future__ import annotations

import io
import json
import signal
import threading
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_mqueue.spark.cli import program
from django_mqueue.spark.cli.output import Output
from django_mqueue.spark.cli.verb import Job, Stopped, Verb
from django_mqueue.spark.errors import NoSpark

from .verbs import exit_code, main, verb

NUMBERS = [signal.SIGTERM, signal.SIGINT]


def heard() -> None:
    """Keep the handlers that the command has set."""


def pysparks() -> None:
    """Set PySpark's handler, as PySpark does when it creates its context."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def start_with(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], Any]) -> None:
    """Replace the start of Spark by these steps."""

    def start(ours: program.Run) -> str:
        for step in steps:
            step()
        return "a session"

    monkeypatch.setattr(program.Run, "start", start)


def java_ends() -> None:
    """Java has also received the signal."""
    raise NoSpark("Java ended before Spark started")


@pytest.mark.parametrize("answers", [False, True], ids=["goes on", "answers"])
@pytest.mark.parametrize("then", [heard, java_ends])
@pytest.mark.parametrize(
    ("handlers", "number"), [(heard, signal.SIGTERM), (heard, signal.SIGINT), (pysparks, signal.SIGINT)]
)
def test_the_first_signal_while_spark_starts(
    handlers: Callable[[], None],
    number: signal.Signals,
    then: Callable[[], None],
    answers: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    start_with(monkeypatch, handlers, lambda: signal.raise_signal(number), then)
    done = []

    def run(job: Job) -> int:
        done.append(job.spark)
        return 0

    assert main(run=run, answers=answers) == (128 + number if answers else 0)
    out, err = capfd.readouterr()
    assert (out, done) == ("", [])
    assert err.endswith("stopped while Spark was starting: nothing was done\n")
    assert {number: signal.getsignal(number) for number in NUMBERS} == before


@pytest.mark.parametrize("answers", [False, True], ids=["goes on", "answers"])
def test_the_second_signal_while_spark_starts(answers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first signal arrives before PySpark sets its handler."""
    signals = [
        lambda: signal.raise_signal(signal.SIGTERM),
        pysparks,
        lambda: signal.raise_signal(signal.SIGINT),
    ]
    start_with(monkeypatch, *signals)
    assert main(run=lambda job: len(job.spark), answers=answers) == 128 + signal.SIGINT


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.name)
def test_a_verb_that_answers_has_no_answer_when_it_was_stopped(
    number: signal.Signals, db: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(job: Job) -> int:
        signal.raise_signal(number)
        assert job.stopping.is_set()
        raise Stopped("stopped before the end")

    assert main(run=run, answers=True) == 128 + number
    assert capfd.readouterr().err.endswith("try: stopped before the end\n")
    monkeypatch.setattr("django_mqueue.management.commands.mqueue_spark.VERBS", [verb(run, answers=True)])
    with pytest.raises(CommandError, match=r"^stopped before the end$") as raised:
        call_command("mqueue_spark", "try")
    assert raised.value.returncode == 128 + number


def stopped(verb: Verb, *words: str) -> tuple[Job, io.StringIO]:
    """Return a job that has received the first signal."""
    parser, out, stopping = ArgumentParser(), io.StringIO(), threading.Event()
    verb.arguments(parser)
    parser.set_defaults(remote=None)
    stopping.set()
    start: Any = lambda: None  # noqa: E731
    return Job(parser.parse_args(words), {}, start, Output(out, io.StringIO()), stopping), out


@pytest.mark.spark
def test_of_a_verification_that_was_stopped_nobody_knows_whether_the_archive_is_whole(tmp_path: Path) -> None:
    from django_mqueue.spark.cli.verbs.archives import VERIFY

    from .archives import batch, begin

    folder = begin(tmp_path / "archive")
    batch(folder, "orders", [1, 2])
    job, out = stopped(VERIFY, "--to", str(folder), "--json")
    with pytest.raises(Stopped, match="some files were not read"):
        VERIFY.run(job)
    assert json.loads(out.getvalue()) == []
    assert VERIFY.answers


def test_of_a_doctor_that_was_stopped_nobody_knows_whether_all_is_well() -> None:
    from django_mqueue.spark.cli.verbs.doctor import VERB

    job, out = stopped(VERB, "--json")
    with pytest.raises(Stopped, match="some checks did not run"):
        VERB.run(job)
    assert [finding["what"] for finding in json.loads(out.getvalue())] == ["Python"]
    assert VERB.answers


def test_which_verbs_go_on_with_the_next_run() -> None:
    from django_mqueue.spark.cli.verbs import VERBS

    assert {each.name for each in VERBS if not each.answers} == {
        "archive", "compact", "replay", "backfill",
    }  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.name)
def test_an_erasure_that_has_not_begun_is_no_success(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Otherwise its user believes that a person's data is erased."""
    start_with(monkeypatch, lambda: signal.raise_signal(number))
    assert exit_code("erase", "--to", str(tmp_path), "--topic", "orders", "--key", "ada") == 128 + number
    assert capfd.readouterr().err.endswith("erase: stopped while Spark was starting: nothing was done\n")
