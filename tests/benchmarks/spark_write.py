"""How fast Spark appends to a topic, beside plain processes: ``python3 -m tests.benchmarks.spark_write``."""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.benchmarks.served import Served

LEAST = 0.7
"""Of the rate of the plain processes."""

DESCRIPTION = """\
Writes the same messages, of about 300 bytes with a key, a kind and headers, to a topic of a private server: in turns by
Spark's sink with so many tasks at once, and by as many plain processes that call publish_many, a few thousand messages
each time. Tells the medians, and the ratio of the rates. Exit code 1: the sink is slower than it should be.
The processes are there, with their connections, before the time begins; so are Spark's.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.benchmarks.spark_write",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole = {"type": int, "metavar": "N"}
    parser.add_argument("--rows", **whole, default=1_000_000, help="of a turn (default: %(default)s)")
    parser.add_argument("--times", **whole, default=3, help="each writes (default: %(default)s)")
    parser.add_argument("--processes", **whole, default=2, help="and tasks at once (default: %(default)s)")
    parser.add_argument("--at-once", **whole, default=5_000, help="a publish_many (default: %(default)s)")
    parser.add_argument(
        "--server", choices=["mariadb", "mysql"], default="mariadb", help="which private server"
    )
    parser.add_argument("--memory", default="2g", help="of the JVM (default: %(default)s)")
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
        return run(options, server)


def run(options: argparse.Namespace, server: Served) -> int:
    from django.core.management import call_command

    from django_mqueue.spark.launching import session
    from tests.benchmarks.publishers import Publishers

    call_command("migrate", verbosity=0)
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
                if turn:  # Before the first one nothing is compiled, and no process runs.
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
    """Seconds. The rows are made on the way, as the plain processes make theirs."""
    from tests.benchmarks.publishers import SQL, TOPIC
    from tests.benchmarks.race import connection

    rows = spark.range(0, options.rows, 1, 2 * options.processes).selectExpr(*SQL)
    begun = time.perf_counter()
    rows.write.format("mqueue").options(**connection(server), topic=TOPIC).mode("append").save()
    return time.perf_counter() - begun


def check(rows: int) -> None:
    """Raise ``AssertionError`` unless the topic has so many; and empty it."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*), COUNT(DISTINCT payload) FROM queue_messages")
        found = cursor.fetchone()
        assert found == (rows, rows), found
        cursor.execute("TRUNCATE queue_messages")
    connection.close()


def launch_it(arguments: list[str]) -> int:
    """Provides what is missing, as the tests do."""
    from example_project.environment.interpreters import running
    from example_project.environment.layout import LOCAL
    from example_project.environment.processes import forward
    from example_project.environment.venv import VirtualEnvironment

    home = LOCAL / "spark-venvs"
    python = VirtualEnvironment(running(), "5.2", ("spark", "test"), home).ensure()
    return forward([python, "-m", "tests.benchmarks.spark_write", *arguments], env=dict(os.environ))


_begun = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _begun:6.0f} s  {text}", flush=True)


if __name__ == "__main__":
    from example_project.environment.launch import launch

    has_all = all(map(importlib.util.find_spec, ("django", "MySQLdb", "environ", "pyspark")))
    if {"-h", "--help"} & set(sys.argv[1:]):
        parse(sys.argv[1:])
    launch(main if has_all else launch_it)
