"""The cost of an archive run for publishers and consumers: ``python3 -m tests.benchmarks.spark_beside``."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks import stage
from tests.benchmarks.stage import say, staged

if TYPE_CHECKING:
    from tests.benchmarks.served import Served
    from tests.benchmarks.traffic import Rates, Traffic

LEAST = 0.9
"""Minimum share of the rates without an archive run."""

DESCRIPTION = """\
A process publishes to a topic of a private server and another one consumes it, as fast as they can, on this machine.
Tells their rates in turns: with nothing else at work, and while mqueue_spark archive (a process of its own, as it is
started from a timetable) archives a long topic. Exit code 1: with it they are slower than they may be.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = stage.parser("spark_beside", DESCRIPTION)
    stage.count(parser, "--rows", 1_000_000, "to be archived")
    stage.count(parser, "--times", 3, "turns")
    parser.add_argument("--seconds", type=float, default=10, help="of a quiet turn (default: %(default)s)")
    parser.add_argument(
        "--through", default="", help="a command that starts the archive run, as 'nice -n 19' (default: none)"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    with staged(options.server) as (server, folder):
        return run(options, server, folder)


def run(options: argparse.Namespace, server: Served, folder: Path) -> int:
    from django.db import connections

    from tests.benchmarks import long_topic
    from tests.benchmarks.traffic import Traffic

    long_topic.fill(options.rows, say)
    connections.close_all()
    shares: dict[str, list[float]] = {"publishing": [], "consuming": []}
    with Traffic() as traffic:
        for turn in range(options.times):
            before = traffic.rates(options.seconds)
            during = archived(traffic, options, server, folder / str(turn))
            after = traffic.rates(options.seconds)
            for name, part in (("publishing", "published"), ("consuming", "consumed")):
                quiet = (getattr(before, part) + getattr(after, part)) / 2
                shares[name].append(getattr(during, part) / quiet)
                say(f"{name}: {quiet:,.0f} a second, with an archive run {getattr(during, part):,.0f}")
    failed = False
    for name, values in shares.items():
        share = statistics.median(values)
        failed |= share < LEAST
        say(f"{name}: {share:.2f} of its rate{'' if share >= LEAST else f', less than {LEAST}'}")
    return int(failed)


def archived(traffic: Traffic, options: argparse.Namespace, server: Served, target: Path) -> Rates:
    """Return the rates while a separate process archives the long topic, from its start to its end."""
    from django_mqueue import unsubscribe
    from example_project.environment.processes import run as command
    from tests.benchmarks.long_topic import TOPIC

    named = [
        "--host",
        server.host,
        "--port",
        str(server.port),
        "--user",
        server.user,
        "--database",
        server.database,
    ]

    def work() -> None:
        begun = time.monotonic()
        command(
            [*options.through.split(), sys.executable, "-m", "django_mqueue.spark", "archive", "--topic", TOPIC,
             "--to", str(target), *named],
        )  # fmt: skip
        say(f"archived in {time.monotonic() - begun:.1f} s")

    with ThreadPoolExecutor(1) as pool:
        archiving = pool.submit(work)
        found = traffic.rates(1, archiving)
        archiving.result()
    unsubscribe(TOPIC, "archive")
    return found


if __name__ == "__main__":
    stage.begin("spark_beside", parse, main)
