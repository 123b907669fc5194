"""The command ends on signals and errors, and none of its Spark processes stays."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from django_mqueue.spark.cli.program import PROGRAM
from django_mqueue.spark.java import find_java
from tests.support.processes import Worker, wait_until
from tests.support.waiting import SPARK_PATIENCE

from .commands import NO_DJANGO, SMALL, command, started_by, wait_for_nothing_left

pytestmark = [pytest.mark.spark, pytest.mark.exhaustive]

TRYING = ("tests.spark.trying",)


def java_home(place: Path, script: str) -> str:
    """Return a new Java home, whose program ``java`` is this shell script."""
    (place / "bin").mkdir()
    java = place / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return str(place)


def has_begun(worker: Worker, what: str) -> None:
    wait_until(
        lambda: what in worker.output() or not worker.running, f"{what} is said", seconds=SPARK_PATIENCE
    )
    assert worker.running, worker.output()


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)],
    ids=lambda number: number.name,
)
def test_the_first_signal_ends_it_between_two_steps(number: signal.Signals) -> None:
    """The command handles SIGINT itself, although PySpark sets its own handler when Spark starts."""
    with command(TRYING, ("steps", "0.5", *SMALL), NO_DJANGO) as worker:
        has_begun(worker, "step 1\n")
        worker.send(number)
        assert worker.wait(SPARK_PATIENCE) == 0
        wait_for_nothing_left(worker.pid)
        *_, before, last = [
            line for line in worker.output().splitlines() if "step" in line or "ended" in line
        ]
        assert last == f"ended after {before.removeprefix('step ')}"
        assert "stopping after the current step; a second signal stops at once" in worker.output()
        assert "Traceback" not in worker.output()


@pytest.mark.parametrize(
    ("words", "code"),
    [(("steps", "0.5"), 0), (("count", "orders"), 128 + signal.SIGINT)],
    ids=["that goes on", "that answers"],
)
def test_a_verb_ends_when_the_first_signal_comes_while_spark_starts(
    words: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    """Java waits for a file, so that Spark cannot have started before the signal comes."""
    door = tmp_path / "door"
    home = java_home(
        tmp_path,
        f'[ "$1" = -version ] || while [ ! -e {door} ]; do sleep 0.1; done; exec {find_java().home}/bin/java "$@"',
    )
    with command(TRYING, (*words, *SMALL), {**NO_DJANGO, "JAVA_HOME": home}) as worker:
        wait_until(
            lambda: any("SparkSubmit" in line for line in started_by(worker.pid).values()),
            "Java runs",
            seconds=SPARK_PATIENCE,
        )
        worker.send(signal.SIGINT)
        has_begun(worker, "a second signal stops at once")
        door.touch()
        assert worker.wait(SPARK_PATIENCE) == code
        wait_for_nothing_left(worker.pid)
        said = worker.output()
    assert "stopped while Spark was starting: nothing was done" in said
    assert "step 1" not in said
    assert "Traceback" not in said


def busy(worker: Worker) -> None:
    """Wait until Spark runs a task, which takes a hundred seconds."""
    wait_until(
        lambda: (
            any("pyspark.daemon pyspark.worker" in line for line in started_by(worker.pid).values())
            or not worker.running
        ),
        "a task runs",
        seconds=SPARK_PATIENCE,
    )
    assert worker.running, worker.output()


def test_the_second_signal_ends_it_at_once() -> None:
    with command(TRYING, ("steps", "100", *SMALL), NO_DJANGO) as worker:
        busy(worker)
        worker.send(signal.SIGTERM)
        has_begun(worker, "a second signal stops at once")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 128 + signal.SIGTERM
        wait_for_nothing_left(worker.pid)
        assert "Traceback" not in worker.output()


def test_nothing_stays_of_a_driver_that_was_killed() -> None:
    with command(TRYING, ("steps", "100", *SMALL), NO_DJANGO) as worker:
        busy(worker)
        worker.kill()
        wait_for_nothing_left(worker.pid)


@pytest.mark.long
def test_a_java_that_is_gone_is_told() -> None:
    """Java also dies when a service manager stops all processes, or when the machine is out of memory."""
    with command(TRYING, ("steps", "100", *SMALL), NO_DJANGO) as worker:
        busy(worker)
        (java,) = [pid for pid, line in started_by(worker.pid).items() if "deploy.SparkSubmit" in line]
        os.kill(java, signal.SIGKILL)
        assert worker.wait(SPARK_PATIENCE) == 1
        assert "Spark's Java process ended during the work" in worker.output()
        assert "Traceback" not in worker.output()
        wait_for_nothing_left(worker.pid)


@pytest.mark.parametrize(
    ("version", "said"),
    [(21, "Java ended before Spark started"), (11, "Java 11, but Spark needs 17")],
    ids=["broken", "old"],
)
def test_a_java_that_does_not_do_is_an_error(version: int, said: str, tmp_path: Path) -> None:
    home = java_home(tmp_path, f'[ "$1" = -version ] && echo \'version "{version}"\' >&2 || exit 1')
    with command(TRYING, ("steps", "1", *SMALL), {**NO_DJANGO, "JAVA_HOME": home}) as worker:
        assert worker.wait(SPARK_PATIENCE) == 1
        assert f"{PROGRAM} steps: " in worker.output()
        assert said in worker.output()
        assert "Traceback" not in worker.output()
