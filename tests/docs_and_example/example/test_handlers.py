"""The handlers receive messages in order, out of order, and repeatedly."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from django_mqueue import StaleDelivery

Handler = Callable[[Any], None]


def message(offset: int, leg: int = 0, key: str | None = "N1", fenced: bool = False) -> SimpleNamespace:
    def extend(seconds: float) -> bool:
        if fenced:
            raise StaleDelivery([], "extend")
        return True

    payload = {
        "leg": leg,
        "flight": f"AA{leg}",
        "carrier": "AA",
        "departure_delay": 4,
        "arrival_delay": None,
        "cancelled": False,
    }
    return SimpleNamespace(offset=offset, key=key, payload=payload, headers={"run": 1}, extend=extend)


@pytest.fixture
def board(flights: None) -> Handler:
    from example_project.flights.consumers import board

    return board


@pytest.fixture
def bulletin(flights: None) -> Handler:
    from example_project.flights.consumers import bulletin

    return bulletin


@pytest.fixture
def delays(flights: None) -> Handler:
    from example_project.flights.consumers import delays

    return delays


def aircraft() -> list[tuple[Any, ...]]:
    from example_project.flights.models import Aircraft

    return list(Aircraft.objects.order_by("tail").values_list("tail", "legs", "last_leg", "redelivered"))


def violations() -> list[tuple[Any, ...]]:
    from example_project.flights.models import Violation

    return list(Violation.objects.order_by("pk").values_list("tail", "expected", "leg"))


def test_board_keeps_the_last_leg_of_each_aircraft(board: Handler) -> None:
    for offset, (leg, tail) in enumerate([(1, "N1"), (1, "N2"), (2, "N1"), (3, "N1")]):
        board(message(offset, leg, tail))
    assert aircraft() == [("N1", 3, "AA3", 0), ("N2", 1, "AA1", 0)]
    assert violations() == []


def test_board_counts_a_leg_that_comes_again_and_changes_nothing(board: Handler) -> None:
    for leg in (1, 1, 2, 2, 2, 3):
        board(message(leg, leg))
    assert aircraft() == [("N1", 3, "AA3", 3)]
    assert violations() == []


def test_board_needs_one_statement_for_a_leg(board: Handler, django_assert_num_queries: Any) -> None:
    board(message(1, 1))
    with django_assert_num_queries(1):
        board(message(2, 2))


def test_board_notices_a_leg_that_is_missing(board: Handler) -> None:
    for leg in (1, 3, 4):
        board(message(leg, leg))
    assert aircraft() == [("N1", 4, "AA4", 0)]
    assert violations() == [("N1", 2, 3)]


def test_board_notices_a_first_leg_that_is_missing(board: Handler) -> None:
    board(message(2, 2))
    assert violations() == [("N1", 1, 2)]
    assert aircraft() == [("N1", 2, "AA2", 0)]


def test_board_notices_a_leg_that_comes_too_late(board: Handler) -> None:
    for leg in (1, 2, 3, 1, 2):
        board(message(leg, leg))
    assert violations() == [("N1", 4, 1), ("N1", 4, 2)]
    assert aircraft() == [("N1", 3, "AA3", 0)]


def test_board_leaves_a_late_leg_to_the_worker_that_took_over(board: Handler) -> None:
    for leg in (1, 2, 3):
        board(message(leg, leg))
    with pytest.raises(StaleDelivery):
        board(message(2, 2, fenced=True))
    assert violations() == []


def test_board_keeps_flights_without_an_aircraft_once(board: Handler) -> None:
    from example_project.flights.models import Unassigned

    for offset in (7, 8, 7):
        board(message(offset, key=None))
    assert list(Unassigned.objects.order_by("pk").values_list("offset", "redelivered")) == [(7, 1), (8, 0)]
    assert aircraft() == []


def test_delays_notes_a_message_once(delays: Handler, django_assert_num_queries: Any) -> None:
    from example_project.flights.models import Delay

    with django_assert_num_queries(1):
        delays(message(7))
    delays(message(8))
    delays(message(7))
    rows = Delay.objects.order_by("pk").values_list(
        "offset", "carrier", "departure", "arrival", "redelivered"
    )
    assert list(rows) == [(7, "AA", 4, None, 1), (8, "AA", 4, None, 0)]


def day(carrier: str, date: str, last_error: str = "") -> SimpleNamespace:
    payload = {"carrier": carrier, "day": date, "flights": 1, "delayed": 0, "departed": 1, "delay": 3}
    return SimpleNamespace(key=carrier, payload=payload, last_error=last_error)


def test_bulletins_are_told_once_more_where_the_line_is_busy(bulletin: Handler) -> None:
    from example_project.flights.bulletins import LineBusy

    bulletin(day("UA", "2013-01-02"))
    with pytest.raises(LineBusy, match="UA is on the phone"):
        bulletin(day("UA", "2013-02-01"))
    bulletin(day("UA", "2013-02-01", last_error="LineBusy: UA is on the phone"))


@pytest.mark.parametrize("last_error", ["", "LineBusy: HA is on the phone"])
def test_a_carrier_without_a_number_is_never_told(bulletin: Handler, last_error: str) -> None:
    from example_project.flights.bulletins import NoNumber

    with pytest.raises(NoNumber, match="no number of HA"):
        bulletin(day("HA", "2013-01-02", last_error))
