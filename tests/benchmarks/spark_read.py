"""Speed of reading the log with Spark, compared with JDBC: ``python3 -m tests.benchmarks.spark_read``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks import stage
from tests.benchmarks.stage import JAR, provide_connector, say, staged

if TYPE_CHECKING:
    from tests.benchmarks.served import Served

MOST = 1.0
"""Maximum share of the time that JDBC takes."""

GROWTH = 16.0
"""MiB that ten times the rows may add to each part of the driver. Random variation can be this large."""

DESCRIPTION = """\
Fills a topic on a private server; reads it to Parquet on local[N], in turns by django_mqueue.spark.export, and by
format("mqueue") and format("jdbc") with MariaDB's connector, whose rows Spark's Java writes: the same rows, as many
partitions, the same compression. Tells the medians, and their ratios.
Then reads a topic ten times as long, and tells what that adds to the driver's memory.
Exit code 1: one of ours is slower than JDBC, or the driver grew.

All write the same rows: JDBC has the server take kind and encoding out of their JSON, and Spark make timestamps of
its numbers. What JDBC takes for the table's own columns, as they are, is told beside it, and does not count.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = stage.parser("spark_read", DESCRIPTION)
    stage.count(parser, "--rows", 1_000_000, "of the race")
    stage.count(parser, "--times", 5, "each reads")
    stage.count(parser, "--partitions", 6, "of either")
    stage.count(parser, "--cores", 2, "of the machine's that Spark gives tasks to")
    parser.add_argument("--compression", default="snappy", help="of Parquet (default: %(default)s)")
    parser.add_argument("--traced", action="store_true", help="no two messages have the same headers")
    parser.add_argument("--only", choices=["rate", "memory"], help="the race alone, or the memory alone")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    provide_connector()
    with staged(options.server) as (server, folder):
        return run(options, server, folder)


def run(options: argparse.Namespace, server: Served, folder: Path) -> int:
    from django.db import connections

    from django_mqueue.spark.launching import session
    from tests.benchmarks import long_topic
    from tests.benchmarks.driver_memory import measured
    from tests.benchmarks.race import Race

    far = options.rows * (1 if options.only == "rate" else 10)
    long_topic.fill(far, say, traced=options.traced)
    say(f"{long_topic.row_bytes()} bytes a row")
    connections.close_all()
    spark = session(
        "reading", master=f"local[{options.cores}]", memory=options.memory,
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


if __name__ == "__main__":
    stage.begin("spark_read", parse, main)
