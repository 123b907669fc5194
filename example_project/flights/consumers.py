"""The two groups of the flights: each sees every one, and neither knows of the other. And one of the carriers' days.

A message can come again: its worker may have died between the handler's write and the acknowledgement. Both
handlers of flights are written so that the second time changes nothing, and at one statement for each message.
"""

from __future__ import annotations

from django.db import IntegrityError
from django.db.models import F

from django_mqueue import Delivery, FixedDelay, RetryOn, consumer

from .bulletins import LineBusy, tell
from .events import BULLETINS, DAYS, REPLAYED, TOPIC, CarrierDay, FlightEvent
from .models import Aircraft, Delay, Unassigned, Violation


@consumer(REPLAYED, group="board", strict=True)
@consumer(TOPIC, group="board", strict=True)
def board(message: Delivery) -> None:
    """Keep each aircraft's last known leg, and prove that its legs come in order.

    The UPDATE is the proof: it finds the aircraft only where the leg before this one was the last.
    """
    event: FlightEvent = message.payload
    if message.key is None:
        _unassigned(message, event)
        return
    seen = Aircraft.objects.filter(run_id=message.headers["run"], tail=message.key)
    leg = event["leg"]
    if leg > 1 and seen.filter(legs=leg - 1).update(legs=leg, last_leg=event["flight"]):
        return
    if leg == 1 and _first_leg(message, event):
        return
    last = seen.values_list("legs", flat=True).first() or 0
    if leg == last:
        seen.update(redelivered=F("redelivered") + 1)
        return
    _still_mine(message)
    _violation(message, event, expected=last + 1)


def _first_leg(message: Delivery, event: FlightEvent) -> bool:
    try:
        Aircraft.objects.create(
            run_id=message.headers["run"], tail=str(message.key), legs=1, last_leg=event["flight"]
        )
    except IntegrityError:  # It has left before.
        return False
    return True


def _unassigned(message: Delivery, event: FlightEvent) -> None:
    try:
        Unassigned.objects.create(
            offset=message.offset,
            run_id=message.headers["run"],
            flight=event["flight"],
        )
    except IntegrityError:
        Unassigned.objects.filter(offset=message.offset).update(redelivered=F("redelivered") + 1)


def _still_mine(message: Delivery) -> None:
    """Raise ``StaleDelivery`` if this worker stood still for so long that another took over from it.

    Then the legs that came meanwhile are the other's work, this one included, and nothing is out of order.
    """
    message.extend(60)


def _violation(message: Delivery, event: FlightEvent, expected: int) -> None:
    """Write it down, and go on from this leg, so that one mistake is counted once."""
    run, tail = message.headers["run"], str(message.key)
    Violation.objects.create(
        run_id=run, tail=tail, expected=expected, leg=event["leg"], offset=message.offset
    )
    if event["leg"] > expected:
        last = {"legs": event["leg"], "last_leg": event["flight"]}
        Aircraft.objects.update_or_create(run_id=run, tail=tail, defaults=last)


@consumer(REPLAYED, group="delays")
@consumer(TOPIC, group="delays")
def delays(message: Delivery) -> None:
    """Note the flight's delays for the carriers' statistics.

    One row for each message, found by its offset, and no shared totals: nobody waits for anybody, and the
    database adds up when it is asked.
    """
    event: FlightEvent = message.payload
    try:
        Delay.objects.create(
            offset=message.offset,
            run_id=message.headers["run"],
            carrier=event["carrier"],
            departure=event["departure_delay"],
            arrival=event["arrival_delay"],
            cancelled=event["cancelled"],
        )
    except IntegrityError:
        Delay.objects.filter(offset=message.offset).update(redelivered=F("redelivered") + 1)


@consumer(DAYS, group=BULLETINS, strict=True, retry=RetryOn(LineBusy, policy=FixedDelay(0.1)))
def bulletin(message: Delivery) -> None:
    """Tell a carrier of its days, in their order. Once more where the line is busy; else it is a dead letter."""
    day: CarrierDay = message.payload
    tell(day, tried=bool(message.last_error))
