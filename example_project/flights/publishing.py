"""Start and publish a run: each batch of flights and its messages in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

from django.db import transaction
from django.utils import timezone

from django_mqueue import publish_many, subscribe, unsubscribe

from .dataset import FlightRow, read_flights
from .events import ARCHIVE, CARRIERS, GROUPS, LATE, LATE_GUARD, TOPIC, flight_message
from .models import Aircraft, CarrierHour, CarrierStream, Delay, Flight, Run, Unassigned, Violation

BATCH = 500
RESULTS = (Aircraft, Unassigned, Violation, Delay, CarrierHour, CarrierStream)
"""The tables of the groups' results."""


def start_run(flights: int) -> Run:
    """Delete the previous run, finished or not, and start a run of ``flights`` flights.

    The groups start after all messages of earlier runs. They are registered before the first message is published, so
    no message of this run is deleted before both groups are done with it.
    """
    for group in (*GROUPS, CARRIERS, ARCHIVE, LATE, LATE_GUARD):
        unsubscribe(TOPIC, group)
    Run.objects.all().delete()
    delete_results()
    for group in GROUPS:
        subscribe(TOPIC, group, start="latest")
    return Run.objects.create(flights=flights)


def delete_results() -> None:
    """Delete the groups' results of all runs."""
    for model in RESULTS:
        model._default_manager.all().delete()


def publish_run(run: Run, advance: Callable[[int], object]) -> None:
    """Store and publish the run's flights. ``advance``: called with the size of each batch that is committed.

    Raises ``RuntimeError`` if the id of a message is already in the topic.
    """
    legs: Counter[str] = Counter()
    for batch in _batches(read_flights(run.flights)):
        messages = []
        for flight in batch:
            if flight.tail is not None:
                legs[flight.tail] += 1
            messages.append(flight_message(run, flight, legs[flight.tail] if flight.tail else 0))
        with transaction.atomic():
            Flight.objects.bulk_create([_stored(run, flight) for flight in batch])
            published = publish_many(TOPIC, messages)
        # A message whose id is already in the topic is not stored again.
        if not all(message.created for message in published):
            raise RuntimeError("a message of this run exists already: two runs have the same token")
        advance(len(batch))
    run.published_at = timezone.now()
    run.save(update_fields=["published_at"])


def _batches(flights: Iterator[FlightRow]) -> Iterator[list[FlightRow]]:
    while batch := list(islice(flights, BATCH)):
        yield batch


def _stored(run: Run, flight: FlightRow) -> Flight:
    return Flight(
        run=run,
        row=flight.row,
        carrier=flight.carrier,
        number=flight.number,
        tail=flight.tail or "",
        origin=flight.origin,
        destination=flight.destination,
        scheduled=flight.scheduled,
        departure_delay=flight.departure_delay,
        arrival_delay=flight.arrival_delay,
        cancelled=flight.cancelled,
    )
