"""Batches of the streaming query put into the table that the admin shows, each once.

A batch holds the new totals of the hours that it changed, so whoever applies it again does no harm. One that comes
late would: a driver that stood still, and was replaced, must not put old totals over new ones. So the number of the
last batch stands beside the totals, and both change in one transaction.
"""

from __future__ import annotations

from django.db import transaction

from .hours import Hours, Totals
from .models import CarrierHour, CarrierStream


class AnotherQuery(Exception):
    """The table is kept by a query with another checkpoint."""


def apply(run_id: int, query: str, batch: int, hours: Hours) -> bool:
    """Put the totals into the table, unless this batch, or a later one, is there already; whether it was new.

    ``query`` is the streaming query's id, which its checkpoint keeps. Raises ``AnotherQuery`` where the totals come
    from another: a new checkpoint begins where its group stands, and its totals lack all that was before.
    """
    rows = [
        CarrierHour(run_id=run_id, carrier=carrier, hour=hour, **totals._asdict())
        for (carrier, hour), totals in sorted(hours.items())
    ]
    with transaction.atomic():
        place, _ = CarrierStream.objects.select_for_update().get_or_create(
            run_id=run_id, defaults={"query": query, "batch": -1}
        )
        if place.query != query:
            raise AnotherQuery(
                f"the hours of run {run_id} are kept by the query {place.query}, whose checkpoint is elsewhere or lost;"
                " take that one, or publish the flights anew"
            )
        if batch <= place.batch:
            return False
        CarrierHour.objects.bulk_create(
            rows, batch_size=500, update_conflicts=True, update_fields=[*Totals._fields]
        )
        place.batch = batch
        place.save(update_fields=["batch", "applied_at"])
    return True
