"""The example's streaming query gives the same totals as a batch over the same messages, even if batches repeat."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_mqueue import OutgoingMessage, publish_many
from tests.spark.streams import newest, stands_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from example_project.flights.models import Run

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("flights")]

FLIGHTS = 1500


@pytest.fixture
def stream(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> Callable[[int], Any]:
    """Return a function that runs the query to the end and returns its exception."""

    def run(run_id: int) -> Any:
        from example_project.flights.streaming import start

        query = start(spark, run_id, tmp_path / "checkpoint", drain=True, at_once=400, connection=options)
        try:
            query.awaitTermination(120)
        except Exception as error:
            return error
        return None

    return run


def published(flights: int) -> Run:
    from example_project.flights.publishing import publish_run, start_run

    run = start_run(flights)
    publish_run(run, lambda count: None)
    return run


def test_the_table_is_what_the_file_and_a_batch_say(
    spark: SparkSession, options: dict[str, str], stream: Callable[[int], Any]
) -> None:
    """The log also has messages of another run, one year later."""
    from example_project.flights.carriers import by_hour, flights_of
    from example_project.flights.hours import computed_hours, expected_hours, kept_hours

    publish_many("flights", [flight("2014-06-01T12:00", run=0)])
    run = published(FLIGHTS)
    assert stream(run.pk) is None
    assert kept_hours(run) == expected_hours(FLIGHTS)
    batch = spark.read.format("mqueue").options(**options, topic="flights", includeHeaders="true").load()
    assert computed_hours(by_hour(flights_of(run.pk, batch)).collect()) == expected_hours(FLIGHTS)
    assert stands_at("carriers", "flights") == newest("flights")


def test_a_batch_that_was_applied_and_comes_again_changes_nothing(
    stream: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies after the table's commit and before Spark's."""
    from example_project.flights import streaming
    from example_project.flights.applying import apply
    from example_project.flights.hours import expected_hours, kept_hours
    from example_project.flights.models import CarrierStream

    new: dict[int, list[bool]] = {}

    def dying(run_id: int, query: str, batch: int, hours: Any) -> bool:
        new.setdefault(batch, []).append(apply(run_id, query, batch, hours))
        if batch == 1 and len(new[1]) == 1:
            raise RuntimeError("the driver dies")
        return True

    monkeypatch.setattr(streaming, "apply", dying)
    run = published(FLIGHTS)
    assert "the driver dies" in str(stream(run.pk))
    assert CarrierStream.objects.get().batch == 1
    assert stream(run.pk) is None
    assert new.pop(1) == [True, False], "the batch did not come again: this proves nothing"
    assert all(found == [True] for found in new.values())
    assert kept_hours(run) == expected_hours(FLIGHTS)


def test_what_is_too_late_is_dropped_and_nothing_else(stream: Callable[[int], Any]) -> None:
    """Spark's watermark is one day behind the newest flight."""
    from example_project.flights.models import CarrierHour

    def publish(*moments: str) -> None:
        publish_many("flights", [flight(moment) for moment in moments])
        assert stream(1) is None

    publish("2013-01-10T12:30")
    publish("2013-01-09T12:59", "2013-01-09T11:59")
    assert [f"{row.hour:%d %H}" for row in CarrierHour.objects.order_by("hour")] == ["09 12", "10 12"]


def flight(moment: str, run: int = 1) -> OutgoingMessage:
    event = {"carrier": "UA", "scheduled": f"{moment}:00+00:00", "departure_delay": 1}
    return OutgoingMessage(event, headers={"run": run})
