"""The command line of ``tests/run.py``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

DESCRIPTION = """\
Runs the project's checks and tests on private servers, in virtual environments that it makes itself.

  --quick     the checks; unit tests and each feature's main cases, on MariaDB
  (default)   the checks; everything on MariaDB with the oldest Django, of the exhaustive and of the slow
              tests a sample; the protocol on MySQL; the features on MySQL with the newest Python and Django; Spark
  --full      everything of all this, on both servers, with the oldest and the newest Spark

With DATABASE_URL set, pytest runs on that server alone.
"""
EPILOG = (
    "Further arguments go to pytest; then only pytest runs, with the Python that runs this and Django 5.2."
)


@dataclass(frozen=True)
class Options:
    quick: bool
    ci: bool
    server: str
    pytest: tuple[str, ...]
    spark: bool = False
    full: bool = False
    seed: str = ""
    base: str = ""
    record: bool = False

    @property
    def everything(self) -> bool:
        """Return True unless a developer chose the tests."""
        return not (self.pytest or self.spark)


def parse(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="tests/run.py",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="three minutes, on one server")
    size.add_argument("--full", action="store_true", help="everything; takes hours")
    parser.add_argument("--ci", action="store_true", help="plain output, and the slowest tests named")
    parser.add_argument(
        "--server", choices=["mariadb", "mysql", "all"], help="default: all; with --quick, mariadb"
    )
    parser.add_argument(
        "--spark", action="store_true", help="only what needs Spark, in an environment that has it"
    )
    parser.add_argument(
        "--seed",
        default="",
        help="what chooses the sample, the model's stories and the proof's faults; default: the newest commit."
        " Where no sample is taken (--full, --spark, arguments for pytest): only the stories and faults",
    )
    parser.add_argument(
        "--base",
        default="",
        help="also run guards and slow tests that changed since this commit; default: the one before the newest",
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="write what the tests took to tests/durations.json, by which the quick lane chooses;"
        " with --quick, fail if a test of it took over two seconds",
    )
    known, rest = parser.parse_known_args(arguments)
    return Options(
        quick=known.quick,
        ci=known.ci,
        server=known.server or ("mariadb" if known.quick else "all"),
        pytest=tuple(word for word in rest if word != "--"),
        spark=known.spark,
        full=known.full,
        seed=known.seed,
        base=known.base,
        record=known.record,
    )
