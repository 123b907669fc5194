"""A streaming job as a process of its own: ``python -m tests.spark.driver JOB``, a JSON object of these:

``options`` of the source, ``checkpoint``, ``target`` (a folder), ``sink``, ``every`` (how often it looks for a batch;
if empty it ends where there is no more), ``master``. Sinks:

``files``: each batch becomes one file named by its number, written whole or not at all: a batch that comes again
replaces it. ``parquet``: Spark's own sink, whose readers see what its log names. ``topic``: another topic.
``read``: no stream at all, but what the sink ``parquet`` has come to, as one file of ``files``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from django_mqueue.spark.launching import environment
from django_mqueue.spark.write_options import ADAPTIVE_STREAMS

from .jobs import FAST_JVM, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONNECTION = {"host", "port", "user", "database", "unixSocket"}
COPIES = "copies"
"""The topic of the sink ``topic``."""


def main(job: dict[str, Any]) -> None:
    """Spark finds the format by the name of its module: nothing is registered here."""
    os.environ.update(environment())
    builder = SparkSession.builder.master(job["master"]).config("spark.driver.memory", "600m")
    settings = {**FAST_JVM, "spark.ui.enabled": "false", ADAPTIVE_STREAMS: "false"}  # The rows have no ids.
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    target = Path(job["target"])
    table = str(target / "table")
    if job["sink"] == "read":
        rows = spark.read.parquet(table).select("payload").toLocalIterator()
        keep(target, "table", rows)
    elif job["sink"] == "files":
        options, checkpoint = job["options"], job["checkpoint"]

        def batch(frame: DataFrame, number: int) -> None:
            keep(target, str(number), frame.toLocalIterator())

        query = start(spark, options, checkpoint, batch, once=not job["every"], every=job["every"])
        query.awaitTermination()
    else:
        stream = spark.readStream.format("mqueue").options(**job["options"]).load().select("key", "payload")
        writer = stream.writeStream.option("checkpointLocation", job["checkpoint"])
        if job["sink"] == "topic":
            database = {name: value for name, value in job["options"].items() if name in CONNECTION}
            writer = writer.format("mqueue").options(**database, topic=COPIES)
        else:
            writer = writer.format("parquet").option("path", table)
        every = job["every"]
        writer = writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)
        writer.start().awaitTermination()
    spark.stop()


def keep(target: Path, name: str, rows: Iterable[Any]) -> None:
    """The numbers that are the rows' payloads, as a file that is there as a whole."""
    part = target / f"{name}.part"
    part.write_text(json.dumps([json.loads(bytes(row.payload)) for row in rows]))
    os.replace(part, target / f"{name}.json")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
