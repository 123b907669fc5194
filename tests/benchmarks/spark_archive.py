"""How fast a topic is archived, beside the same by JDBC: ``python3 -m tests.benchmarks.spark_archive``."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.benchmarks.served import Served

LEAST = 1.3
"""Times as fast as JDBC."""

DESCRIPTION = """\
Fills a topic on a private server; archives it, in turns, by django_mqueue.spark.archive, and by what one writes with
format("jdbc") and MariaDB's connector: read in as many parts, sorted by offset, divided by topic and date, Parquet with
zstd, and read back and counted. Tells the medians, and their ratio. Exit code 1: less than the target.
What archive does beyond that (checksums, a look at each offset, history, manifest, group) is within its time.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.benchmarks.spark_archive",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole = {"type": int, "metavar": "N"}
    parser.add_argument("--rows", **whole, default=1_000_000, help="of the topic (default: %(default)s)")
    parser.add_argument("--times", **whole, default=3, help="each archives (default: %(default)s)")
    parser.add_argument("--partitions", **whole, default=6, help="of JDBC (default: %(default)s)")
    parser.add_argument(
        "--server", choices=["mariadb", "mysql"], default="mariadb", help="which private server"
    )
    parser.add_argument("--memory", default="2g", help="of the JVM (default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    from tests.benchmarks.served import served
    from tests.benchmarks.spark_read import provide_connector

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
        return run(options, server, Path(stack.enter_context(TemporaryDirectory(prefix="mqueue-archive-"))))


def run(options: argparse.Namespace, server: Served, folder: Path) -> int:
    from django.core.management import call_command
    from django.db import connections

    from django_mqueue.spark.launching import session
    from tests.benchmarks import long_topic
    from tests.benchmarks.spark_read import JAR

    call_command("migrate", verbosity=0)
    long_topic.fill(options.rows, say)
    connections.close_all()
    spark = session(
        "archiving", master="local[2]", memory=options.memory,
        config={"spark.jars": str(JAR), "spark.log.level": "ERROR"},
    )  # fmt: skip
    spent: dict[str, list[float]] = {"archive": [], "jdbc": []}
    try:
        for turn in range(options.times + 1):
            ways = {"archive": by_archive, "jdbc": by_jdbc}
            for name, way in ways.items():
                target = folder / name
                shutil.rmtree(target, ignore_errors=True)
                begun = time.perf_counter()
                way(spark, server, options, str(target))
                seconds = time.perf_counter() - begun
                say(f"{name}: {seconds:.2f} s{'' if turn else ', at first'}")
                if turn:  # Before the first one nothing is compiled, and no process runs.
                    spent[name].append(seconds)
            forget()
    finally:
        spark.stop()
    medians = {name: statistics.median(values) for name, values in spent.items()}
    ratio = medians["jdbc"] / medians["archive"]
    say(f"archive is {ratio:.2f} times as fast as JDBC{'' if ratio >= LEAST else f', less than {LEAST}'}")
    return int(ratio < LEAST)


def by_archive(spark: SparkSession, server: Served, options: argparse.Namespace, target: str) -> None:
    from django_mqueue.spark.archiving import archive
    from tests.benchmarks.long_topic import TOPIC
    from tests.benchmarks.race import connection

    (done,) = archive(spark, TOPIC, target, options=connection(server))
    assert done.rows["messages"] == options.rows, done


def by_jdbc(spark: SparkSession, server: Served, options: argparse.Namespace, target: str) -> None:
    from tests.benchmarks.race import KINDS, Race

    race = Race(spark, server, options.rows, options.partitions, "zstd", Path(target))
    read = race.theirs(KINDS[0])
    dated = read.selectExpr("*", "CAST(timestamp_millis(published_at) AS DATE) AS date")
    in_order = dated.sortWithinPartitions("topic", "date", "offset")
    in_order.write.partitionBy("topic", "date").option("compression", "zstd").parquet(target)
    found = spark.read.parquet(target).selectExpr("count(*)", "min(offset)", "max(offset)").first()
    assert found is not None
    assert tuple(found) == (options.rows, 1, options.rows), found


def forget() -> None:
    """So that the next run begins anew: its group is new, and nothing is deleted meanwhile."""
    from django_mqueue import unsubscribe
    from tests.benchmarks.long_topic import TOPIC

    unsubscribe(TOPIC, "archive")


def launch_it(arguments: list[str]) -> int:
    """Provides what is missing, as the tests do."""
    from example_project.environment.interpreters import running
    from example_project.environment.layout import LOCAL
    from example_project.environment.processes import forward
    from example_project.environment.venv import VirtualEnvironment

    home = LOCAL / "spark-venvs"
    python = VirtualEnvironment(running(), "5.2", ("spark", "test"), home).ensure()
    return forward([python, "-m", "tests.benchmarks.spark_archive", *arguments], env=dict(os.environ))


_begun = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _begun:6.0f} s  {text}", flush=True)


if __name__ == "__main__":
    from example_project.environment.launch import launch

    has_all = all(map(importlib.util.find_spec, ("django", "MySQLdb", "environ", "pyspark")))
    if {"-h", "--help"} & set(sys.argv[1:]):
        parse(sys.argv[1:])
    launch(main if has_all else launch_it)
