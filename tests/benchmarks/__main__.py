"""Measure the speed of publishing and of workers, compared with the same work in plain SQL and with other queues.

Each database server is private and syncs its binary log and its redo log at each commit. The other queues and the plots
need packages, which this command installs below ``.local/``. A peer that cannot be installed is left out, and the
report says why. After each scenario the results so far are written, so an interrupted run loses little.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "benchmarks"
NEEDED = ("django", "MySQLdb", "environ", "pygal")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--server", choices=["all", "mariadb", "mysql"], default="all", help="default: %(default)s")
    add("--rounds", type=_positive, default=5, metavar="N", help="default: %(default)s")
    add("--only", default="", metavar="TEXT", help="scenarios whose names contain this text")
    add("--scale", action="store_true", help="the scenarios with large numbers instead, once each")
    add(
        "--curves",
        action="store_true",
        help="drains by batch size and threads, publish by connections, instead",
    )
    add(
        "--size",
        type=float,
        default=1.0,
        metavar="PART",
        help="0.1: a tenth of the messages and times, for a trial",
    )
    help = (
        "other queues: all, database (those that store messages in a database) or none (default: %(default)s)"
    )
    add("--peers", choices=["all", "database", "none"], default="all", help=help)
    help = "default: docs/benchmarks, or .local/benchmarks with another --size than 1"
    add("--out", type=Path, metavar="DIRECTORY", help=help)
    add("--report", action="store_true", help="measure nothing: write the report of the results so far")
    options = parser.parse_args(arguments)
    if not 0 < options.size <= 1:
        parser.error(f"--size {options.size:g}: give a part between 0 and 1, such as 0.1")
    options.out = options.out or (DOCS if options.size == 1 else ROOT / ".local" / "benchmarks")
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if not all(map(importlib.util.find_spec, NEEDED)):
        return _elsewhere(arguments)
    from tests.benchmarks.running import run

    return run(options)


def _elsewhere(arguments: list[str]) -> int:
    """Run in an environment that has the packages."""
    from example_project.environment.interpreters import running
    from example_project.environment.layout import LOCAL
    from example_project.environment.processes import forward
    from example_project.environment.venv import VirtualEnvironment

    python = VirtualEnvironment(running(), "5.2", ("bench",), LOCAL / "bench-venvs").ensure()
    return forward([python, "-m", "tests.benchmarks", *arguments], env=dict(os.environ))


if __name__ == "__main__":
    from example_project.environment.launch import launch

    launch(main)
