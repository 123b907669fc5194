"""The command line of ``tests/run.py``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

DESCRIPTION = """\
Runs the project's checks and tests, on private servers, in virtual environments that it makes itself:
ruff, mypy, missing migrations, then pytest on MariaDB and on MySQL, side by side, with the Python that
runs this and Django 5.2, and the quick tests again with the newest Python found and Django 6.1 on MySQL
(on MariaDB where there is no MySQL). What needs Spark runs with the newest one on MariaDB; --full also
runs it with the oldest, and the oldest Java, on MySQL. Of the statement boundaries at which a process dies, and of the
guards that are taken out of the code, it takes a sample that the newest commit chooses; --full takes all.
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
    long: bool = False
    full: bool = False
    seed: str = ""

    @property
    def everything(self) -> bool:
        """Not a developer's own choice of tests."""
        return not (self.pytest or self.spark or self.long)


def parse(arguments: list[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="tests/run.py",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--quick", action="store_true", help="leave out what is marked slow, and the newest Python"
    )
    parser.add_argument(
        "--ci", action="store_true", help="all of it, with plain output and the slowest tests named"
    )
    parser.add_argument(
        "--server", choices=["mariadb", "mysql", "all"], help="default: all; with --quick, mariadb"
    )
    parser.add_argument(
        "--spark", action="store_true", help="nothing but what needs Spark, in an environment that has it"
    )
    parser.add_argument(
        "--long",
        action="store_true",
        help="nothing but what is marked long, which no other run has: minutes each, with Spark",
    )
    parser.add_argument(
        "--full", action="store_true", help="all statement boundaries and all guards, not a sample of them"
    )
    parser.add_argument("--seed", default="", help="what chooses the sample; default: the newest commit")
    known, rest = parser.parse_known_args(arguments)
    server = known.server or ("mariadb" if known.quick else "all")
    words = tuple(word for word in rest if word != "--")
    return Options(known.quick, known.ci, server, words, known.spark, known.long, known.full, known.seed)
