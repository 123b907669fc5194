"""A fast JVM and streaming queries on it. Needs no Django."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FAST_JVM = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


def defaults(place: Path, **more: str) -> Path:
    """Write a fast JVM's defaults into a folder for ``SPARK_CONF_DIR``, for programs that start Spark themselves."""
    values = {**FAST_JVM, "spark.driver.memory": "600m", **more}
    place.joinpath("spark-defaults.conf").write_text(
        "".join(f"{name} {value}\n" for name, value in values.items())
    )
    return place


def start(
    spark: SparkSession,
    options: dict[str, str],
    checkpoint: str,
    batch: Callable[[DataFrame, int], Any],
    *,
    once: bool = True,
    every: str = "",
) -> StreamingQuery:
    """Start a query that gives each batch to ``batch``.

    With ``once`` it ends when it has read everything. Otherwise it runs until it is stopped.
    ``every``: the trigger interval; the query then keeps running.
    """
    reader = spark.readStream.format("mqueue").options(**options).schema("offset BIGINT, payload BINARY")
    writer = reader.load().writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
    if every or not once:
        return writer.trigger(processingTime=every or "50 milliseconds").start()
    return writer.trigger(availableNow=True).start()
