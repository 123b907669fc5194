"""What a flight's message says: the payload that the publisher makes and the groups read."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from django_mqueue import OutgoingMessage

from .dataset import FlightRow

if TYPE_CHECKING:
    from .models import Run

TOPIC = "flights"
REPLAYED = "flights-replayed"
"""Where the pipeline puts the flights once more, out of the archive."""
DAYS = "carrier-days"
"""Where Spark publishes what the flights of each carrier came to, day by day."""

GROUPS = ("board", "delays")
CARRIERS, ARCHIVE = "carriers", "archive"
"""The groups that Spark's streaming query and archive runs are."""
LATE, LATE_GUARD = "latecomers", "backfill-latecomers"
"""A group that comes when the log is empty, and is given the past; and who holds back deletion while it is."""
BULLETINS = "bulletins"
"""The group that tells carriers of their days."""


class FlightEvent(TypedDict):
    """``leg``: the aircraft's first, second, … of this run; 0 where it is unknown. ``flight``: for people to read.

    ``scheduled``: when it was to leave, in UTC, as ISO 8601 has it.
    """

    leg: int
    flight: str
    carrier: str
    scheduled: str
    departure_delay: int | None
    arrival_delay: int | None
    cancelled: bool


class CarrierDay(TypedDict):
    """``day``: of UTC, as ISO 8601 has it. The numbers are those of ``hours.Totals``."""

    carrier: str
    day: str
    flights: int
    delayed: int
    departed: int
    delay: int


def id_prefix(run: Run) -> str:
    return f"{run.token}-"


def flight_message(run: Run, flight: FlightRow, leg: int) -> OutgoingMessage:
    """The message of a flight: its aircraft is the key, so that each aircraft's legs are consumed in order."""
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
