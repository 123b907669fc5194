"""The plain computation over the file, and the comparison with the stored results."""

from __future__ import annotations

from copy import deepcopy

from example_project.flights.dataset import read_flights
from example_project.flights.outcome import CarrierTotals, LastLeg, Outcome, differences, expected


def test_the_totals_of_the_whole_file() -> None:
    result = expected(336_776)
    assert result.stored == 336_776
    assert result.unassigned == 2_512
    assert len(result.aircraft) == 4_043
    assert sum(last.legs for last in result.aircraft.values()) == 336_776 - 2_512
    assert result.aircraft["N725MQ"].legs == 575
    assert sum(totals.flights for totals in result.carriers.values()) == 336_776
    assert sum(totals.cancelled for totals in result.carriers.values()) == 8_255
    assert (result.carriers["UA"].flights, result.carriers["OO"].flights) == (58_665, 32)


def test_an_aircrafts_last_leg_is_the_last_in_the_file() -> None:
    of_one = [flight for flight in read_flights(2_000) if flight.tail == "N725MQ"]
    assert expected(2_000).aircraft["N725MQ"] == LastLeg(len(of_one), str(of_one[-1]))


def test_equal_results_have_no_differences() -> None:
    assert differences(expected(500), expected(500)) == []


def test_each_difference_is_named() -> None:
    want = Outcome(
        stored=3,
        unassigned=1,
        aircraft={"N1": LastLeg(2, "AA1"), "N2": LastLeg(1, "AA2")},
        carriers={"AA": CarrierTotals(3, 0, 5, -2)},
    )
    have = deepcopy(want)
    have.stored, have.unassigned = 2, 0
    have.aircraft = {"N1": LastLeg(1, "AA1"), "N3": LastLeg(1, "AA3")}
    have.carriers["AA"].departure_delay = 10
    found = "\n".join(differences(want, have))
    for part in (
        "flights stored: 2, should be 3",
        "board: 0 flights without an aircraft, should be 1",
        "board: aircraft N1: LastLeg(legs=1",
        "board: aircraft N2: missing",
        "board: aircraft N3: LastLeg(legs=1, flight='AA3'), should be missing",
        "delays: carrier AA: CarrierTotals(flights=3, cancelled=0, departure_delay=10",
    ):
        assert part in found
