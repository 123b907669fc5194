"""The command with test verbs, as its own process without Django: ``python -m tests.spark.trying …``."""

from __future__ import annotations

import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import TYPE_CHECKING

from django_mqueue.spark.cli.program import main
from django_mqueue.spark.cli.verb import Job, Verb
from django_mqueue.spark.errors import NoConnection
from django_mqueue.spark.launching import session

if TYPE_CHECKING:
    import pyarrow as pa


def no_arguments(parser: ArgumentParser) -> None:
    """Add no arguments."""


def seconds(parser: ArgumentParser) -> None:
    parser.add_argument("seconds", type=float)


def steps(job: Job) -> int:
    """Run jobs one after another until a signal arrives."""
    done = 0
    while not job.stopping.is_set():
        wait_in_a_task(job, job.arguments.seconds)
        done += 1
        job.tell(f"step {done}")
    job.tell(f"ended after {done}")
    return 0


def wait_in_a_task(job: Job, seconds: float) -> None:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            threading.Event().wait(seconds)
            yield batch

    job.spark.range(0, 1, 1, 1).mapInArrow(work, "id BIGINT").collect()


def fail(job: Job) -> int:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise NoConnection("the database is away, seen from an executor")

    job.spark.range(0, 1, 1, 1).mapInArrow(work, "id BIGINT").collect()
    return 0


def count(job: Job) -> int:
    topic = job.arguments.topic
    job.tell(str(job.spark.read.format("mqueue").options(**job.options, topic=topic).load().count()))
    return 0


def again(job: Job) -> int:
    """Request a session while a session of a Spark Connect server runs, and after its end."""
    setting, away = "spark.sql.shuffle.partitions", job.spark
    found = session(master="local[1]", config={setting: "3"})
    job.tell(f"the same: {found is away}, {setting}: {away.conf.get(setting)}")
    away.stop()
    here = session(master="local[1]", memory="600m")
    job.tell(f"{here.sparkContext.master}: {here.range(3).count()} rows")
    here.stop()
    return 0


VERBS = [
    Verb("steps", "Goes on.", seconds, steps),
    Verb("fail", "Does not.", no_arguments, fail),
    Verb("again", "Starts Spark again.", no_arguments, again),
    Verb("count", "Counts a topic.", lambda parser: parser.add_argument("topic"), count, answers=True),
]

if __name__ == "__main__":
    sys.exit(main(None, VERBS))
