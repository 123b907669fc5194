"""The carriers' days: their totals, their expected deliveries, and the differences that are reported."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("flights")

FLIGHTS = 3_000
"""Some of these flights leave on an evening that is the next day in UTC."""


def test_days_are_those_of_the_file() -> None:
    from example_project.flights.dataset import read_flights
    from example_project.flights.days import days_of
    from example_project.flights.hours import expected_hours

    want = Counter((flight.carrier, f"{flight.scheduled:%Y-%m-%d}") for flight in read_flights(FLIGHTS))
    have = days_of(expected_hours(FLIGHTS))
    assert {day: totals.flights for day, totals in have.items()} == want
    assert sum(totals.departed for totals in have.values()) == sum(
        flight.departure_delay is not None for flight in read_flights(FLIGHTS)
    )


@pytest.mark.spark
def test_days_are_those_of_utc_wherever_spark_is(spark: SparkSession) -> None:
    from example_project.flights.carriers import by_day
    from example_project.flights.dataset import read_flights
    from example_project.flights.days import days_of
    from example_project.flights.hours import Totals, expected_hours

    rows = [(flight.carrier, flight.scheduled, flight.departure_delay) for flight in read_flights(FLIGHTS)]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        flights = spark.createDataFrame(rows, "carrier STRING, scheduled TIMESTAMP, departure_delay INT")
        found = by_day(flights).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    have = {(row.carrier, row.day): Totals(*(row[name] for name in Totals._fields)) for row in found}
    assert have == days_of(expected_hours(FLIGHTS))


def test_what_becomes_of_days_goes_by_carrier_and_date() -> None:
    from example_project.flights.days import Result, dead_letters_of, results_of

    days = [("AA", "2013-01-01"), ("AA", "2013-01-02"), ("HA", "2013-01-01"), ("HA", "2013-01-02")]
    assert [results_of(days)[day] for day in days] == [
        Result(True, 1),
        Result(True, 0),
        Result(True, 1),
        Result(True, 1),
    ]
    assert dead_letters_of(days) == dict.fromkeys(days[2:], "NoNumber")


def test_each_day_that_differs_is_told() -> None:
    from example_project.flights.days import Result, different_days

    want = {("AA", "2013-01-01"): Result(True, 1), ("AA", "2013-01-02"): Result(True, 0)}
    assert list(different_days(want, dict(want))) == []
    have = {("AA", "2013-01-01"): Result(True, 2), ("UA", "2013-01-01"): Result(True, 1)}
    assert list(different_days(want, have)) == [
        "AA, 2013-01-01: Result(done=True, failures=2), should be Result(done=True, failures=1)",
        "AA, 2013-01-02: missing, should be Result(done=True, failures=0)",
        "UA, 2013-01-01: Result(done=True, failures=1), should be missing",
    ]


def test_a_day_that_is_there_twice_or_too_late_is_told() -> None:
    from example_project.flights.days import out_of_order

    stored = [("AA", "2013-01-02"), ("UA", "2013-01-01"), ("AA", "2013-01-03"), ("UA", "2013-01-02")]
    assert list(out_of_order(stored)) == []
    assert list(
        out_of_order([*stored, ("AA", "2013-01-03"), ("UA", "2013-01-01"), ("UA", "2013-01-03")])
    ) == [
        "AA, 2013-01-03: follows 2013-01-03",
        "UA, 2013-01-01: follows 2013-01-02",
    ]
