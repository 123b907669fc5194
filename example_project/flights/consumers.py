"""The two groups that read every flight, independently of each other, and the group of the carriers' days.

A message can be delivered twice: its worker may have died between the handler's write and the acknowledgement. The
handlers of flights change nothing the second time, and run one statement for each message.
"""

from __future__ import annotations

from django.db import IntegrityError
from django.db.models import F

from django_mqueue import Delivery, FixedDelay, RetryOn, consumer

from .bulletins import LineBusy, call_carrier
from .events import BULLETINS, DAYS, REPLAYED, TOPIC, CarrierDay, FlightEvent
from .models import Aircraft, Delay, Unassigned, Violation


@consumer(REPLAYED, group="board", strict=True)
@consumer(TOPIC, group="board", strict=True)
def board(message: Delivery) -> None:
    """Store each aircraft's last known leg, and check that its legs come in order.

    The UPDATE is the check: it finds the aircraft only if the previous leg was the last one.
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
    _check_lease(message)
    _violation(message, event, expected=last + 1)


def _first_leg(message: Delivery, event: FlightEvent) -> bool:
    try:
        Aircraft.objects.create(
            run_id=message.headers["run"], tail=str(message.key), legs=1, last_leg=event["flight"]
        )
    except IntegrityError:  # The first leg is already stored.
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


def _check_lease(message: Delivery) -> None:
    """Raise ``StaleDelivery`` if this worker paused for so long that another worker took over.

    The other worker has then handled this leg and the following ones, and nothing is out of order.
    """
    message.extend(60)


def _violation(message: Delivery, event: FlightEvent, expected: int) -> None:
    """Store the violation and continue from this leg, so that one error is counted once."""
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
    """Store the flight's delays for the carriers' statistics.

    Each message has one row, found by its offset. Without shared totals, no handler waits for another. The database
    computes the sums when they are read.
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
    """Inform a carrier of its days, in order. A busy line is retried; any other error makes a dead letter."""
    day: CarrierDay = message.payload
    call_carrier(day, tried=bool(message.last_error))
