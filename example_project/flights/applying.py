"""Apply each batch of the streaming query once to the table that the admin shows.

A batch holds the new totals of the hours that it changed, so applying it twice is harmless. A late batch is not: a
driver that hung and was replaced could overwrite new totals with old ones. So the number of the last batch is stored
with the totals, and both change in one transaction.
"""

from __future__ import annotations

from django.db import transaction

from .hours import Hours, Totals
from .models import CarrierHour, CarrierStream


class AnotherQuery(Exception):
    """The table belongs to another query, with another checkpoint."""


def apply(run_id: int, query: str, batch: int, hours: Hours) -> bool:
    """Store the totals, unless this batch or a later batch is already stored. Return whether the batch was new.

    ``query``: the streaming query's id, which its checkpoint keeps.

    Raises ``AnotherQuery`` if the stored totals come from another query. A new checkpoint starts at its group's
    position, so its totals lack all earlier flights.
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
                " use that one, or publish the flights again"
            )
        if batch <= place.batch:
            return False
        CarrierHour.objects.bulk_create(
            rows, batch_size=500, update_conflicts=True, update_fields=[*Totals._fields]
        )
        place.batch = batch
        place.save(update_fields=["batch", "applied_at"])
    return True
