"""Speed of appending with Spark, compared with plain processes: ``python3 -m tests.benchmarks.spark_write``."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING

from tests.benchmarks import stage
from tests.benchmarks.stage import say, staged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.benchmarks.served import Served

LEAST = 0.7
"""Minimum share of the rate of the plain processes."""

DESCRIPTION = """\
Writes the same messages, of about 300 bytes with a key, a kind and headers, to a topic of a private server: in turns by
Spark's sink with so many tasks at once, and by as many plain processes that call publish_many, a few thousand messages
each time. Tells the medians, and the ratio of the rates. Exit code 1: the sink is slower than it should be.
The processes are there, with their connections, before the time begins; so are Spark's.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = stage.parser("spark_write", DESCRIPTION)
    stage.count(parser, "--rows", 1_000_000, "of a turn")
    stage.count(parser, "--times", 3, "each writes")
    stage.count(parser, "--processes", 2, "and tasks at once")
    stage.count(parser, "--at-once", 5_000, "a publish_many")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    with staged(options.server) as (server, _):
        return run(options, server)


def run(options: argparse.Namespace, server: Served) -> int:
    from django_mqueue.spark.launching import session
    from tests.benchmarks.publishers import Publishers

    spark = session(
        "writing",
        master=f"local[{options.processes}]",
        memory=options.memory,
        config={"spark.log.level": "ERROR"},
    )
    spent: dict[str, list[float]] = {"sink": [], "publish_many": []}
    try:
        for turn in range(options.times + 1):
            with Publishers(options.processes, options.rows, options.at_once) as publishers:
                seconds = {"sink": by_spark(spark, options, server)}
                check(options.rows)
                seconds["publish_many"] = publishers.publish()
                check(options.rows)
            for name, value in seconds.items():
                say(
                    f"{name}: {value:.2f} s, {options.rows / value:,.0f} a second{'' if turn else ', at first'}"
                )
                if turn:  # The first turn compiles code and starts processes.
                    spent[name].append(value)
    finally:
        spark.stop()
    medians = {name: statistics.median(values) for name, values in spent.items()}
    ratio = medians["publish_many"] / medians["sink"]
    say(
        f"the sink has {ratio:.2f} of the rate of publish_many{'' if ratio >= LEAST else f', less than {LEAST}'}"
    )
    return int(ratio < LEAST)


def by_spark(spark: SparkSession, options: argparse.Namespace, server: Served) -> float:
    """Return the seconds of a write. Spark makes the rows during the write, as the plain processes do."""
    from tests.benchmarks.publishers import SQL, TOPIC
    from tests.benchmarks.race import connection

    rows = spark.range(0, options.rows, 1, 2 * options.processes).selectExpr(*SQL)
    begun = time.perf_counter()
    rows.write.format("mqueue").options(**connection(server), topic=TOPIC).mode("append").save()
    return time.perf_counter() - begun


def check(rows: int) -> None:
    """Raise ``AssertionError`` unless the topic has this many messages. Then empty it."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*), COUNT(DISTINCT payload) FROM queue_messages")
        found = cursor.fetchone()
        assert found == (rows, rows), found
        cursor.execute("TRUNCATE queue_messages")
    connection.close()


if __name__ == "__main__":
    stage.begin("spark_write", parse, main)
