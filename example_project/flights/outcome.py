"""The results of a run: computed from the file, and the differences between two results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .dataset import read_flights


@dataclass
class CarrierTotals:
    """One carrier's flights. The delays are sums of minutes over the flights that have a delay."""

    flights: int = 0
    cancelled: int = 0
    departure_delay: int = 0
    arrival_delay: int = 0


class LastLeg(NamedTuple):
    """The number of legs that an aircraft has flown, and its last leg."""

    legs: int
    flight: str


@dataclass
class Outcome:
    """The results of a run.

    ``stored`` comes from the publisher, ``aircraft`` and ``unassigned`` from group board, ``carriers`` from group
    delays.
    """

    stored: int = 0
    unassigned: int = 0
    aircraft: dict[str, LastLeg] = field(default_factory=dict)
    carriers: dict[str, CarrierTotals] = field(default_factory=dict)


def expected(limit: int) -> Outcome:
    """Compute the results from the first ``limit`` rows of the file, row by row, without database and queue."""
    result = Outcome()
    for flight in read_flights(limit):
        result.stored += 1
        totals = result.carriers.setdefault(flight.carrier, CarrierTotals())
        totals.flights += 1
        totals.cancelled += flight.cancelled
        totals.departure_delay += flight.departure_delay or 0
        totals.arrival_delay += flight.arrival_delay or 0
        if flight.tail is None:
            result.unassigned += 1
            continue
        before = result.aircraft.get(flight.tail)
        result.aircraft[flight.tail] = LastLeg(before.legs + 1 if before else 1, str(flight))
    return result


def differences(want: Outcome, have: Outcome) -> list[str]:
    """Return a line for each difference."""
    found = []
    if want.stored != have.stored:
        found.append(f"flights stored: {have.stored}, should be {want.stored}")
    if want.unassigned != have.unassigned:
        found.append(f"board: {have.unassigned} flights without an aircraft, should be {want.unassigned}")
    found += _between("board: aircraft", want.aircraft, have.aircraft)
    found += _between("delays: carrier", want.carriers, have.carriers)
    return found


def _between(what: str, want: Mapping[str, object], have: Mapping[str, object]) -> Iterator[str]:
    for name in sorted(want.keys() | have.keys()):
        if want.get(name) != have.get(name):
            yield f"{what} {name}: {have.get(name, 'missing')}, should be {want.get(name, 'missing')}"
