"""How fast Spark reads the log, beside its own JDBC source: ``python3 -m tests.benchmarks.spark_read``."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.benchmarks.served import Served

JAR = Path("/usr/share/java/mariadb-java-client.jar")
MOST = 1.0
"""Of the time that JDBC takes."""

GROWTH = 16.0
"""MiB that ten times the rows may add to each part of the driver: what comes and goes by chance."""

DESCRIPTION = """\
Fills a topic on a private server; reads it to Parquet on local[2], in turns by format("mqueue") and by format("jdbc")
with MariaDB's connector: the same rows, as many partitions, the same compression. Tells the medians, and their ratio.
Then reads a topic ten times as long, and tells what that adds to the driver's memory.
Exit code 1: slower than JDBC, or the driver grew.

JDBC reads the table's own columns and leaves kind and encoding within their JSON; where it has to take them out too,
that is told beside it, and does not count.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.benchmarks.spark_read",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rows", type=int, metavar="N", default=1_000_000, help="of the race (default: %(default)s)"
    )
    parser.add_argument("--times", type=int, metavar="N", default=5, help="each reads (default: %(default)s)")
    parser.add_argument(
        "--partitions", type=int, metavar="N", default=6, help="of either (default: %(default)s)"
    )
    parser.add_argument(
        "--server", choices=["mariadb", "mysql"], default="mariadb", help="which private server"
    )
    parser.add_argument("--compression", default="snappy", help="of Parquet (default: %(default)s)")
    parser.add_argument("--memory", default="2g", help="of the JVM (default: %(default)s)")
    parser.add_argument("--traced", action="store_true", help="no two messages have the same headers")
    parser.add_argument("--only", choices=["rate", "memory"], help="the race alone, or the memory alone")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    from tests.benchmarks.served import served

    options = parse(arguments)
    provide_connector()
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
        return run(options, server, Path(stack.enter_context(TemporaryDirectory(prefix="mqueue-read-"))))


def provide_connector() -> None:
    from example_project.environment.system_packages import Need, provide

    provide([Need("MariaDB's connector for JDBC", "libmariadb-java", JAR.exists)])


def run(options: argparse.Namespace, server: Served, folder: Path) -> int:
    from django.core.management import call_command
    from django.db import connections

    from django_mqueue.spark.launching import session
    from tests.benchmarks import long_topic
    from tests.benchmarks.driver_memory import measured
    from tests.benchmarks.race import Race

    call_command("migrate", verbosity=0)
    far = options.rows * (1 if options.only == "rate" else 10)
    long_topic.fill(far, say, traced=options.traced)
    say(f"{long_topic.row_bytes()} bytes a row")
    connections.close_all()
    spark = session(
        "reading", master="local[2]", memory=options.memory,
        config={"spark.jars": str(JAR), "spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"},
    )  # fmt: skip
    failed = False
    try:
        if options.only != "memory":
            race = Race(spark, server, options.rows, options.partitions, options.compression, folder)
            failed |= not race.run(options.times, MOST, say)
        if options.only != "rate":
            failed |= not measured(spark, server, (options.rows, far), GROWTH, say)
    finally:
        spark.stop()
    say("missed" if failed else "all targets met")
    return int(failed)


def launch_it(arguments: list[str]) -> int:
    """Provides what is missing, as the tests do."""
    from example_project.environment.interpreters import running
    from example_project.environment.layout import LOCAL
    from example_project.environment.processes import forward
    from example_project.environment.venv import VirtualEnvironment

    home = LOCAL / "spark-venvs"
    python = VirtualEnvironment(running(), "5.2", ("spark", "test"), home).ensure()
    return forward([python, "-m", "tests.benchmarks.spark_read", *arguments], env=dict(os.environ))


_begun = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _begun:6.0f} s  {text}", flush=True)


if __name__ == "__main__":
    from example_project.environment.launch import launch

    has_all = all(map(importlib.util.find_spec, ("django", "MySQLdb", "environ", "pyspark")))
    if {"-h", "--help"} & set(sys.argv[1:]):
        parse(sys.argv[1:])
    launch(main if has_all else launch_it)
