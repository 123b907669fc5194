"""Speed of archiving a topic, compared with JDBC: ``python3 -m tests.benchmarks.spark_archive``."""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks import stage
from tests.benchmarks.stage import JAR, provide_connector, say, staged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.benchmarks.served import Served

LEAST = 1.3
"""Minimum speed, as a multiple of JDBC's."""

DESCRIPTION = """\
Fills a topic on a private server; archives it, in turns, by django_mqueue.spark.archive, and by what one writes with
format("jdbc") and MariaDB's connector: read in as many parts, sorted by offset, divided by topic and date, Parquet with
zstd, and read back and counted. Tells the medians, and their ratio. Exit code 1: less than the target.
What archive does beyond that (checksums, a look at each offset, history, commits, group) is within its time.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = stage.parser("spark_archive", DESCRIPTION)
    stage.count(parser, "--rows", 1_000_000, "of the topic")
    stage.count(parser, "--times", 3, "each archives")
    stage.count(parser, "--partitions", 6, "of JDBC")
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
                if turn:  # The first turn compiles code and starts processes.
                    spent[name].append(seconds)
            forget()
    finally:
        spark.stop()
    medians = {name: statistics.median(values) for name, values in spent.items()}
    ratio = medians["jdbc"] / medians["archive"]
    say(f"archive is {ratio:.2f} times as fast as JDBC{'' if ratio >= LEAST else f', less than {LEAST}'}")
    return int(ratio < LEAST)


def by_archive(spark: SparkSession, server: Served, options: argparse.Namespace, target: str) -> None:
    from django_mqueue.spark.archives.archive_run import archive
    from tests.benchmarks.long_topic import TOPIC
    from tests.benchmarks.race import connection

    (done,) = archive(spark, TOPIC, target, options=connection(server))
    assert done.rows["messages"] == options.rows, done


def by_jdbc(spark: SparkSession, server: Served, options: argparse.Namespace, target: str) -> None:
    from tests.benchmarks.race import KINDS, Race

    race = Race(spark, server, options.rows, options.partitions, "zstd", Path(target))
    read = race.theirs(KINDS[0])
    dated = read.selectExpr("*", "CAST(published_at AS DATE) AS date")
    in_order = dated.sortWithinPartitions("topic", "date", "offset")
    in_order.write.partitionBy("topic", "date").option("compression", "zstd").parquet(target)
    found = spark.read.parquet(target).selectExpr("count(*)", "min(offset)", "max(offset)").first()
    assert found is not None
    assert tuple(found) == (options.rows, 1, options.rows), found


def forget() -> None:
    """Remove the group, so that the next run starts with a new one."""
    from django_mqueue import unsubscribe
    from tests.benchmarks.long_topic import TOPIC

    unsubscribe(TOPIC, "archive")


if __name__ == "__main__":
    stage.begin("spark_archive", parse, main)
