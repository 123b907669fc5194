"""What an archive run costs those who publish and consume meanwhile: ``python3 -m tests.benchmarks.spark_beside``."""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.benchmarks.served import Served
    from tests.benchmarks.traffic import Rates, Traffic

LEAST = 0.9
"""Of the rates without an archive run."""

DESCRIPTION = """\
A process publishes to a topic of a private server and another one consumes it, as fast as they can, on this machine.
Tells their rates in turns: with nothing else at work, and while mqueue_spark archive (a process of its own, as it is
started from a timetable) archives a long topic. Exit code 1: with it they are slower than they may be.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.benchmarks.spark_beside",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole = {"type": int, "metavar": "N"}
    parser.add_argument("--rows", **whole, default=1_000_000, help="to be archived (default: %(default)s)")
    parser.add_argument("--times", **whole, default=3, help="turns (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="of a quiet turn (default: %(default)s)")
    parser.add_argument("--further", default="", help="arguments of the archive run, as '--nice 0'")
    parser.add_argument(
        "--server", choices=["mariadb", "mysql"], default="mariadb", help="which private server"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    from tests.benchmarks.served import served

    options = parse(arguments)
    with ExitStack() as stack:
        server = stack.enter_context(served(options.server))
        say(f"{server.kind} {server.version}")
        os.environ |= {
            "DATABASE_URL": server.url,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "MQUEUE_PASSWORD": server.password,
        }
        import django

        django.setup()
        return run(options, server, Path(stack.enter_context(TemporaryDirectory(prefix="mqueue-beside-"))))


def run(options: argparse.Namespace, server: Served, folder: Path) -> int:
    from django.core.management import call_command
    from django.db import connections

    from tests.benchmarks import long_topic
    from tests.benchmarks.traffic import Traffic

    call_command("migrate", verbosity=0)
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
    """The rates while a run of its own archives the long topic, from the process's begin to its end."""
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
            [sys.executable, "-m", "django_mqueue.spark", "archive", "--topic", TOPIC, "--to", str(target), *named,
             *options.further.split()],
        )  # fmt: skip
        say(f"archived in {time.monotonic() - begun:.1f} s")

    thread = threading.Thread(target=work)
    thread.start()
    found = traffic.rates(1, thread)
    unsubscribe(TOPIC, "archive")
    return found


def launch_it(arguments: list[str]) -> int:
    """Provides what is missing, as the tests do."""
    from example_project.environment.interpreters import running
    from example_project.environment.layout import LOCAL
    from example_project.environment.processes import forward
    from example_project.environment.venv import VirtualEnvironment

    home = LOCAL / "spark-venvs"
    python = VirtualEnvironment(running(), "5.2", ("spark", "test"), home).ensure()
    return forward([python, "-m", "tests.benchmarks.spark_beside", *arguments], env=dict(os.environ))


_begun = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _begun:6.0f} s  {text}", flush=True)


if __name__ == "__main__":
    from example_project.environment.launch import launch

    has_all = all(map(importlib.util.find_spec, ("django", "MySQLdb", "environ", "pyspark")))
    if {"-h", "--help"} & set(sys.argv[1:]):
        parse(sys.argv[1:])
    launch(main if has_all else launch_it)
