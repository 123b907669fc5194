"""The results of a run, from the tables of the publisher and of the two groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db.models import Count, Q, Sum

from .models import Aircraft, Delay, Flight, Run, Unassigned
from .outcome import CarrierTotals, LastLeg, Outcome


def computed(run: Run) -> Outcome:
    """Return the results of a run."""
    aircraft = Aircraft.objects.filter(run_id=run.pk).values_list("tail", "legs", "last_leg")
    return Outcome(
        stored=Flight.objects.filter(run=run).count(),
        unassigned=Unassigned.objects.filter(run_id=run.pk).count(),
        aircraft={tail: LastLeg(legs, flight) for tail, legs, flight in aircraft},
        carriers={carrier: CarrierTotals(**totals) for carrier, totals in _carriers(run)},
    )


def _carriers(run: Run) -> Iterator[tuple[str, dict[str, Any]]]:
    grouped = Delay.objects.filter(run_id=run.pk).values("carrier").order_by("carrier")
    for row in grouped.annotate(
        flights=Count("offset"),
        cancellations=Count("offset", filter=Q(cancelled=True)),
        departure_delay=Sum("departure", default=0),
        arrival_delay=Sum("arrival", default=0),
    ):
        totals = {name: int(row[name]) for name in ("flights", "departure_delay", "arrival_delay")}
        yield row["carrier"], {**totals, "cancelled": row["cancellations"]}
