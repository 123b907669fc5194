"""A streaming job as its own process: ``python -m tests.spark.driver JOB``, where JOB is a JSON object.

Its keys are ``options`` (of the source), ``checkpoint``, ``target`` (a folder), ``sink``, ``every`` (the trigger
interval; if empty, the job ends when it has read everything) and ``master``. The sinks are:
``files``: each batch becomes one file, named by the batch's number and written atomically. A repeated batch replaces
its file. ``parquet``: Spark's own sink; readers see the files that its log names. ``topic``: another topic.
``read``: no stream; write the rows of the sink ``parquet`` as one file of ``files``.
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
from django_mqueue.spark.writer.write_options import ADAPTIVE_STREAMS

from .jobs import FAST_JVM, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONNECTION = {"host", "port", "user", "database", "unixSocket"}
COPIES = "copies"
"""The target topic of the sink ``topic``."""


def main(job: dict[str, Any]) -> None:
    """Run the job. Spark finds the format by its module's name, so nothing is registered here."""
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
    """Write the numbers in the payloads to a file, atomically."""
    part = target / f"{name}.part"
    part.write_text(json.dumps([json.loads(bytes(row.payload)) for row in rows]))
    os.replace(part, target / f"{name}.json")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
