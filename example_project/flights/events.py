"""What a flight's message says: the payload that the publisher makes and the groups read."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

from django_mqueue import OutgoingMessage

from .dataset import FlightRow

TOPIC = "flights"
GROUPS = ("board", "delays")


class FlightEvent(TypedDict):
    """``leg``: the aircraft's first, second, … of this run; 0 where the aircraft is unknown."""

    leg: int
    carrier: str
    number: int
    origin: str
    destination: str
    scheduled: str
    departure_delay: int | None
    arrival_delay: int | None
    cancelled: bool


def message_id(run: int, row: int | str) -> str:
    return f"{run}-{row}"


def flight_message(run: int, flight: FlightRow, leg: int) -> OutgoingMessage:
    """The message of a flight: its aircraft is the key, so that each aircraft's legs are consumed in order."""
    event = FlightEvent(
        leg=leg,
        carrier=flight.carrier,
        number=flight.number,
        origin=flight.origin,
        destination=flight.destination,
        scheduled=flight.scheduled.isoformat(),
        departure_delay=flight.departure_delay,
        arrival_delay=flight.arrival_delay,
        cancelled=flight.cancelled,
    )
    return OutgoingMessage(
        event, key=flight.tail, id=message_id(run, flight.row), kind="flight", headers={"run": run}
    )


def scheduled_at(event: FlightEvent) -> datetime:
    return datetime.fromisoformat(event["scheduled"])
