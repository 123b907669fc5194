"""The streaming query: flights per carrier and hour, kept in a table, by a consumer group of its own."""

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
"""Of the session. A stream's state is divided by that number for ever; Spark's default of 200 is for large ones."""

AT_ONCE = 10_000
"""Messages of a batch, at most."""


def start(
    spark: SparkSession,
    run_id: int,
    checkpoint: Path,
    *,
    drain: bool = False,
    at_once: int = AT_ONCE,
    connection: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Begin, or go on where the checkpoint says. ``drain``: to the end of what there is, and not on and on.

    ``connection``: options that name the database; without them it is Django's.
    """
    reader = spark.readStream.format("mqueue").schema(COLUMNS).options(**connection or {})
    messages = reader.options(topic=TOPIC, group=CARRIERS, maxOffsetsPerTrigger=str(at_once)).load()

    def keep(changed: DataFrame, batch: int) -> None:
        """Called in a thread of Spark's, in this process."""
        close_old_connections()
        query = changed.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        apply(run_id, query, batch, computed_hours(collect_all(changed)))

    writer = (
        by_hour(flights_of(run_id, messages))
        .writeStream.outputMode("update")  # each batch brings the hours that it changed
        .foreachBatch(keep)
        .option("checkpointLocation", checkpoint.absolute().as_uri())
        .queryName(CARRIERS)
    )
    return (writer.trigger(availableNow=True) if drain else writer.trigger(processingTime="1 second")).start()
