"""The carriers' days as messages, through Spark: published to a topic, read back, and their deliveries as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from django_mqueue.spark import keep_order

from .events import BULLETINS, DAYS, id_prefix
from .hours import Totals
from .models import Run

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NUMBERS = ", ".join(f"{name} LONG" for name in Totals._fields)
EVENT = f"carrier STRING, day STRING, {NUMBERS}"
"""The schema of a payload, named as in ``CarrierDay``."""


def publish_days(run: Run, days: DataFrame) -> None:
    """Publish the rows of ``carriers.by_day`` as messages, each carrier's messages in the order of days.

    The ids contain the days: publishing the rows again stores nothing.
    """
    messages = days.select(
        "day",
        F.col("carrier").alias("key"),
        F.concat(F.lit(id_prefix(run)), "carrier", F.lit("-"), "day").alias("id"),
        F.lit("day").alias("kind"),
        F.create_map(F.lit("run"), F.lit(str(run.pk))).alias("headers"),
        F.to_json(F.struct("carrier", "day", *Totals._fields)).alias("payload"),
    )
    ordered = keep_order(messages, "day").drop("day")
    ordered.write.format("mqueue").option("topic", DAYS).mode("append").save()


def stored_days(spark: SparkSession, run: Run) -> DataFrame:
    """Return the run's messages: offset, time of publication, and the day's fields."""
    columns = "offset BIGINT, published_at TIMESTAMP, payload BINARY, headers STRING"
    log = spark.read.format("mqueue").schema(columns).option("topic", DAYS).load()
    of_run = F.get_json_object("headers", "$.run") == str(run.pk)
    return (
        log.where(of_run).select("offset", "published_at", _day()).select("offset", "published_at", "day.*")
    )


def deliveries(spark: SparkSession, run: Run) -> DataFrame:
    """Return the group's result for each day: ``done``, ``failures``, ``attempts`` and ``took``.

    ``took``: milliseconds from publication to the end.
    """
    columns = "offset BIGINT, done BOOLEAN, redeliveries INT, failure_count INT, done_at TIMESTAMP"
    options = {"topic": DAYS, "table": "deliveries", "groups": BULLETINS}
    state = spark.read.format("mqueue").schema(columns).options(**options).load()
    return (
        stored_days(spark, run)
        .join(state, "offset", "left")
        .select(
            "carrier",
            "day",
            "done",
            F.col("failure_count").alias("failures"),
            (F.col("redeliveries") + 1).alias("attempts"),
            (F.unix_millis("done_at") - F.unix_millis("published_at")).alias("took"),
        )
    )


def times(found: DataFrame) -> DataFrame:
    """Return by ``attempts``: the number of ``days``, and the time in which ``half`` and ``all`` were done.

    ``found``: the result of ``deliveries``.
    """
    return (
        found.groupBy("attempts")
        .agg(
            F.count("*").alias("days"),
            F.percentile_approx("took", 0.5).alias("half"),
            F.max("took").alias("all"),
        )
        .orderBy("attempts")
    )


def dead_letters(spark: SparkSession, run: Run) -> DataFrame:
    """Return the days that are dead letters, each with its ``error``, an exception's name."""
    columns = "original_id STRING, failed_group STRING, last_error STRING, payload BINARY"
    dead = spark.read.format("mqueue").schema(columns).options(topic=DAYS, table="dead_letters").load()
    mine = (F.col("failed_group") == BULLETINS) & F.col("original_id").startswith(id_prefix(run))
    name = F.substring_index(F.substring_index("last_error", ":", 1), ".", -1)
    return dead.where(mine).select(_day(), name.alias("error")).select("day.carrier", "day.day", "error")


def _day() -> Column:
    return F.from_json(F.col("payload").cast("string"), EVENT).alias("day")
