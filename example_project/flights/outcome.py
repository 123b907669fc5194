"""What the flights come to: by a plain look at the file; and where two such results differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .dataset import read_flights


@dataclass
class CarrierTotals:
    """One carrier's flights; the delays are sums of minutes over the flights that have one."""

    flights: int = 0
    cancelled: int = 0
    departure_delay: int = 0
    arrival_delay: int = 0


class LastLeg(NamedTuple):
    """How many legs an aircraft has flown, and the last of them."""

    legs: int
    flight: str


@dataclass
class Outcome:
    """``stored`` is what the publisher keeps; ``aircraft`` and ``unassigned`` are board's, ``carriers`` is delays'."""

    stored: int = 0
    unassigned: int = 0
    aircraft: dict[str, LastLeg] = field(default_factory=dict)
    carriers: dict[str, CarrierTotals] = field(default_factory=dict)


def expected(limit: int) -> Outcome:
    """From the first ``limit`` rows of the file, one after the other; no database, no queue."""
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
    """Each thing that is not as it should be, as a line of text; none when all is equal."""
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
