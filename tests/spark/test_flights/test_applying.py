"""The example's table applies each batch once and in order. No Spark here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)

pytestmark = pytest.mark.usefixtures("flights")


def totals(**flights: int) -> dict[Any, Any]:
    """Return each carrier's totals for the hour from noon."""
    from example_project.flights.hours import Totals

    return {(carrier, NOON): Totals(count, 1, count, 20) for carrier, count in flights.items()}


def kept() -> dict[str, int]:
    from example_project.flights.models import CarrierHour

    return dict(CarrierHour.objects.values_list("carrier", "flights"))


def test_a_batch_replaces_the_hours_that_it_changed() -> None:
    from example_project.flights.applying import apply

    assert apply(1, "a", 0, totals(AA=1, UA=5))
    assert apply(1, "a", 1, totals(AA=2, DL=1))
    assert kept() == {"AA": 2, "UA": 5, "DL": 1}


def test_a_batch_that_comes_again_or_late_changes_nothing() -> None:
    """A paused driver has old totals, if another driver continued meanwhile."""
    from example_project.flights.applying import apply

    for batch in range(3):
        assert apply(1, "a", batch, totals(AA=batch))
    assert not apply(1, "a", 2, totals(AA=9))
    assert not apply(1, "a", 1, totals(AA=1))
    assert kept() == {"AA": 2}


def test_a_batch_without_rows_counts_too() -> None:
    from example_project.flights.applying import apply

    assert apply(1, "a", 0, {})
    assert not apply(1, "a", 0, totals(AA=1))


def test_carriers_that_differ_only_in_case_are_two() -> None:
    """Spark also distinguishes them."""
    from example_project.flights.applying import apply

    assert apply(1, "a", 0, totals(AA=1, aa=20))
    assert apply(1, "a", 1, totals(aa=21))
    assert kept() == {"AA": 1, "aa": 21}


def test_another_querys_totals_are_refused() -> None:
    """After a lost checkpoint a query begins at its group's offset. Its totals lack the earlier flights."""
    from example_project.flights.applying import AnotherQuery, apply

    apply(1, "a", 7, totals(AA=7))
    with pytest.raises(AnotherQuery, match=r"kept by the query a, whose checkpoint is elsewhere or lost"):
        apply(1, "b", 0, totals(AA=1))
    assert apply(2, "b", 0, totals(UA=1)), "another run has hours of its own"
    assert kept() == {"AA": 7, "UA": 1}


def test_means_are_of_what_departed() -> None:
    from example_project.flights.models import CarrierHour

    assert CarrierHour(departed=4, delay=10).mean_delay == 2.5
    assert CarrierHour(departed=0, delay=0).mean_delay is None


@pytest.mark.spark
def test_what_is_called_in_order_is_so_within_the_watermark() -> None:
    """The file's first months are in order. Spark silently drops flights that are further behind than the watermark."""
    from example_project.flights.carriers import LATE_BY
    from example_project.flights.dataset import read_flights
    from example_project.flights.hours import IN_ORDER

    assert LATE_BY == "1 day"
    newest, behind = NOON.replace(year=2000), []
    for flight in read_flights(IN_ORDER + 1):
        newest = max(newest, flight.scheduled)
        behind.append(newest - flight.scheduled)
    assert max(behind[:IN_ORDER]) < timedelta(days=1) < behind[IN_ORDER]
