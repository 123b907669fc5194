"""Totals per carrier and hour: from the file, from the streaming query's table, and from Spark's rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from .dataset import read_flights
from .models import CarrierHour, Run

DELAYED = 15
"""Minutes of delay from which a departure counts as delayed, as the FAA counts."""

IN_ORDER = 111_296
"""The number of flights at the file's beginning that are ordered by day: January, October, November and December.
February follows, which is too late for a watermark that has passed December."""


class Totals(NamedTuple):
    """The totals of an hour.

    ``departed``: flights that were not cancelled. ``delay``: the sum of their minutes; early departures are negative.
    """

    flights: int
    delayed: int
    departed: int
    delay: int


Hours = Mapping[tuple[str, datetime], Totals]
"""Totals by carrier and start of the hour, in UTC."""


def expected_hours(limit: int) -> Hours:
    """Compute the totals from the first ``limit`` rows of the file, row by row, without database, queue and Spark."""
    found: dict[tuple[str, datetime], Totals] = {}
    for flight in read_flights(limit):
        place = flight.carrier, flight.scheduled.replace(minute=0)
        before, delay = found.get(place, Totals(0, 0, 0, 0)), flight.departure_delay
        found[place] = Totals(
            before.flights + 1,
            before.delayed + (delay is not None and delay >= DELAYED),
            before.departed + (delay is not None),
            before.delay + (delay or 0),
        )
    return found


def kept_hours(run: Run) -> Hours:
    """Return the totals of a run in the streaming query's table."""
    rows = CarrierHour.objects.filter(run_id=run.pk).values_list("carrier", "hour", *Totals._fields)
    return {(carrier, hour): Totals(*totals) for carrier, hour, *totals in rows}


def computed_hours(rows: Iterable[Any]) -> Hours:
    """Return the totals in rows of ``carriers.by_hour``."""
    return {
        (row.carrier, datetime.fromtimestamp(row.hour, UTC)): Totals(*(row[name] for name in Totals._fields))
        for row in rows
    }


def different_hours(want: Hours, have: Hours) -> Iterator[str]:
    """Yield a line for each hour that differs."""
    for carrier, hour in sorted(want.keys() | have.keys()):
        found, right = have.get((carrier, hour)), want.get((carrier, hour))
        if found != right:
            yield f"{carrier}, {hour:%Y-%m-%d %H:%M}: {found or 'missing'}, should be {right or 'missing'}"
