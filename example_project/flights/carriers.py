"""Flights per carrier and hour, and per day, computed by Spark over a stream or a batch.

The hour is the hour of the scheduled departure, not the time of the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from .hours import DELAYED, Totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = "payload BINARY, headers STRING"
"""Columns of a message that the query reads. No other column is fetched."""

EVENT = "carrier STRING, scheduled TIMESTAMP, departure_delay INT"
"""The fields of the payload that the query needs, named as in ``FlightEvent``."""

LATE_BY = "1 day"
"""Maximum delay of a message behind the newest event. A day's cancelled flights come at its end, 19 hours late."""


def flights_of(run_id: int, messages: DataFrame) -> DataFrame:
    """Return the flights of one run.

    Flights of an earlier run would be up to a year ahead, and the watermark would close this run's hours at once.
    """
    event = F.from_json(F.col("payload").cast("string"), EVENT)
    of_run = F.get_json_object("headers", "$.run") == str(run_id)
    flights = messages.where(of_run).select(event.alias("event")).select("event.*")
    # The table's collation ignores trailing spaces: two totals would overwrite each other in one row.
    return flights.withColumn("carrier", F.rtrim("carrier"))


def by_hour(flights: DataFrame) -> DataFrame:
    """Return one row for each carrier and hour.

    Over a stream, Spark keeps the hours that may still get flights. It drops an hour when the newest flight is
    ``LATE_BY`` later. Over a batch the watermark has no effect.
    """
    delay = F.col("departure_delay")
    totals = (
        flights.withWatermark("scheduled", LATE_BY)
        .groupBy("carrier", F.window("scheduled", "1 hour").alias("hour"))
        .agg(
            F.count("*").alias("flights"),
            F.count(F.when(delay >= DELAYED, 1)).alias("delayed"),
            F.count(delay).alias("departed"),
            F.coalesce(F.sum(delay), F.lit(0)).alias("delay"),
        )
    )
    return totals.withColumn("hour", F.col("hour.start").cast("long"))


def by_day(flights: DataFrame) -> DataFrame:
    """Return one row for each carrier and day of a batch. Days are in UTC, whatever the time zone of the session."""
    day = F.date_from_unix_date(F.floor(F.col("hour") / 86_400).cast("int")).cast("string")
    totals = [F.sum(name).alias(name) for name in Totals._fields]
    return by_hour(flights).groupBy("carrier", day.alias("day")).agg(*totals)
