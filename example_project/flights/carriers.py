"""Flights per carrier and hour, as Spark computes them: the same over a stream as over a batch. And per day.

The hour is that of the scheduled departure: an event's own time, whenever its message comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from .hours import DELAYED, Totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = "payload BINARY, headers STRING"
"""What is read of a message; nothing else is fetched."""

EVENT = "carrier STRING, scheduled TIMESTAMP, departure_delay INT"
"""What is needed of a payload, by the names of ``FlightEvent``."""

LATE_BY = "1 day"
"""How far a message may be behind the newest event. A day's cancelled flights come at its end, 19 hours late."""


def flights_of(run_id: int, messages: DataFrame) -> DataFrame:
    """The flights of one run. Those of an earlier one would be a year ahead of it, and end its hours at once."""
    event = F.from_json(F.col("payload").cast("string"), EVENT)
    of_run = F.get_json_object("headers", "$.run") == str(run_id)
    flights = messages.where(of_run).select(event.alias("event")).select("event.*")
    # To the table's collation blanks at the end are nothing: two totals would take turns in one row.
    return flights.withColumn("carrier", F.rtrim("carrier"))


def by_hour(flights: DataFrame) -> DataFrame:
    """One row for each carrier and hour.

    Over a stream Spark keeps the hours that may still get flights, and forgets one when the newest flight is
    ``LATE_BY`` beyond it; over a batch the watermark means nothing.
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
    """One row for each carrier and day of UTC, whatever the time zone of Spark's session; of a batch."""
    day = F.date_from_unix_date(F.floor(F.col("hour") / 86_400).cast("int")).cast("string")
    totals = [F.sum(name).alias(name) for name in Totals._fields]
    return by_hour(flights).groupBy("carrier", day.alias("day")).agg(*totals)
