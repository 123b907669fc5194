"""The messages of the flights: topics, groups and payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from django_mqueue import OutgoingMessage

from .dataset import FlightRow

if TYPE_CHECKING:
    from .models import Run

TOPIC = "flights"
REPLAYED = "flights-replayed"
"""The topic to which the pipeline replays the flights from the archive."""
DAYS = "carrier-days"
"""The topic to which Spark publishes the totals of each carrier, day by day."""

GROUPS = ("board", "delays")
CARRIERS, ARCHIVE = "carriers", "archive"
"""The groups of Spark's streaming query and of its archive runs."""
LATE, LATE_GUARD = "latecomers", "backfill-latecomers"
"""A group that is registered when the log is empty and is then backfilled, and the group that holds back deletion
during the backfill."""
BULLETINS = "bulletins"
"""The group that informs carriers of their days."""


class FlightEvent(TypedDict):
    """The payload of a flight.

    ``leg``: the aircraft's leg in this run, from 1; 0 if the aircraft is unknown. ``flight``: a text for people.
    ``scheduled``: the planned departure in UTC, in ISO 8601.
    """

    leg: int
    flight: str
    carrier: str
    scheduled: str
    departure_delay: int | None
    arrival_delay: int | None
    cancelled: bool


class CarrierDay(TypedDict):
    """The payload of a carrier's day. ``day``: in UTC, in ISO 8601. The numbers are the fields of ``hours.Totals``."""

    carrier: str
    day: str
    flights: int
    delayed: int
    departed: int
    delay: int


def id_prefix(run: Run) -> str:
    return f"{run.token}-"


def flight_message(run: Run, flight: FlightRow, leg: int) -> OutgoingMessage:
    """Return the message of a flight. The key is the aircraft, so that its legs are consumed in order."""
    event = FlightEvent(
        leg=leg,
        flight=str(flight),
        carrier=flight.carrier,
        scheduled=flight.scheduled.isoformat(),
        departure_delay=flight.departure_delay,
        arrival_delay=flight.arrival_delay,
        cancelled=flight.cancelled,
    )
    message_id = f"{id_prefix(run)}{flight.row}"
    return OutgoingMessage(event, key=flight.tail, id=message_id, kind="flight", headers={"run": run.pk})
