"""The streaming query: flights per carrier and hour, kept in a table, with a consumer group of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import close_old_connections

from django_mqueue.spark import collect_all

from .applying import apply
from .carriers import COLUMNS, by_hour, flights_of
from .events import CARRIERS, TOPIC
from .hours import computed_hours

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

CONFIG = {"spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}
"""Settings of the session. The state of a stream keeps this number of partitions for ever; Spark's default of 200 is
for large states."""

AT_ONCE = 10_000
"""Maximum number of messages in a batch."""


def start(
    spark: SparkSession,
    run_id: int,
    checkpoint: Path,
    *,
    drain: bool = False,
    at_once: int = AT_ONCE,
    connection: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start the query, or continue at its checkpoint.

    ``drain``: stop at the current end of the log. ``at_once``: the maximum number of messages in a batch.
    ``connection``: options that name the database; Django's database is the default.
    """
    reader = spark.readStream.format("mqueue").schema(COLUMNS).options(**connection or {})
    messages = reader.options(topic=TOPIC, group=CARRIERS, maxOffsetsPerTrigger=str(at_once)).load()

    def keep(changed: DataFrame, batch: int) -> None:
        """Apply a batch. Spark calls this in one of its threads, in this process."""
        close_old_connections()
        query = changed.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        apply(run_id, query, batch, computed_hours(collect_all(changed)))

    writer = (
        by_hour(flights_of(run_id, messages))
        .writeStream.outputMode("update")  # Each batch holds the hours that it changed.
        .foreachBatch(keep)
        .option("checkpointLocation", checkpoint.absolute().as_uri())
        .queryName(CARRIERS)
    )
    return (writer.trigger(availableNow=True) if drain else writer.trigger(processingTime="1 second")).start()
