"""Totals per carrier and hour: by a plain look at the file, by the streaming query's table, by Spark's rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from .dataset import read_flights
from .models import CarrierHour, Run

DELAYED = 15
"""Minutes after its time at which a departure is called delayed, as the FAA counts."""

IN_ORDER = 111_296
"""So many flights of the file are in the order of time, within a day: January, October, November and December.
February, which follows, would be too late for whoever has seen December."""


class Totals(NamedTuple):
    """``departed`` flights were not cancelled; ``delay`` is the sum of their minutes, those that were early counting
    against it."""

    flights: int
    delayed: int
    departed: int
    delay: int


Hours = Mapping[tuple[str, datetime], Totals]
"""By carrier and begin of the hour, in UTC."""


def expected_hours(limit: int) -> Hours:
    """From the first ``limit`` rows of the file, one after the other; no database, no queue, no Spark."""
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
    """What the table holds."""
    rows = CarrierHour.objects.filter(run_id=run.pk).values_list("carrier", "hour", *Totals._fields)
    return {(carrier, hour): Totals(*totals) for carrier, hour, *totals in rows}


def computed_hours(rows: Iterable[Any]) -> Hours:
    """Rows of ``carriers.by_hour``."""
    return {
        (row.carrier, datetime.fromtimestamp(row.hour, UTC)): Totals(*(row[name] for name in Totals._fields))
        for row in rows
    }


def different_hours(want: Hours, have: Hours) -> Iterator[str]:
    """Each hour that is not as it should be, as a line of text."""
    for carrier, hour in sorted(want.keys() | have.keys()):
        found, right = have.get((carrier, hour)), want.get((carrier, hour))
        if found != right:
            yield f"{carrier}, {hour:%Y-%m-%d %H:%M}: {found or 'missing'}, should be {right or 'missing'}"
