"""A finished run as text: each group's results, and whether they are right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import Sum

from django_mqueue import conf
from django_mqueue.models import Message

from .computed import computed
from .dataset import carrier_names
from .events import GROUPS, TOPIC, id_prefix
from .models import Aircraft, Delay, Run, Unassigned, Violation
from .outcome import Outcome, differences, expected

SHOWN = 10
"""Maximum number of differences that are printed. The others are only counted."""


@dataclass(frozen=True)
class Check:
    """A run compared with the plain computation. ``wrong`` is empty if all is equal and in order."""

    run: Run
    outcome: Outcome
    wrong: list[str]
    redelivered: dict[str, int]

    def lines(self) -> Iterator[str]:
        yield from _carrier_table(self.outcome)
        yield ""
        yield from _aircraft_table(self.outcome)
        yield ""
        again = ", ".join(f"{group} {count:,}" for group, count in self.redelivered.items())
        yield f"Delivered again, and changed nothing: {again}."
        if not self.wrong:
            yield (
                f"Equal to a plain computation over the file: {self.run.flights:,} flights, every aircraft's legs "
                "in order."
            )
            return
        yield f"Not as it should be, in {len(self.wrong):,} places:"
        yield from (f"  {line}" for line in self.wrong[:SHOWN])
        if len(self.wrong) > SHOWN:
            yield f"  and {len(self.wrong) - SHOWN:,} more"


def check(run: Run) -> Check:
    """Compare the groups' results for the run with the file."""
    outcome = computed(run)
    wrong = [*_violations(run), *_dead_letters(run), *differences(expected(run.flights), outcome)]
    return Check(run, outcome, wrong, _redelivered(run))


def _violations(run: Run) -> Iterator[str]:
    for violation in Violation.objects.filter(run_id=run.pk).order_by("pk"):
        yield f"board: out of order: {violation}"


def _dead_letters(run: Run) -> Iterator[str]:
    dead = Message.objects.filter(
        topic=conf.dead_letter_topic(TOPIC),
        failed_group__in=GROUPS,
        original_id__startswith=id_prefix(run),
    )
    for group, message, error in dead.values_list("failed_group", "original_id", "last_error"):
        yield f"{group}: gave up message {message}: {(error or '').partition(chr(10))[0]}"


def _redelivered(run: Run) -> dict[str, int]:
    board = sum(
        model._default_manager.filter(run_id=run.pk).aggregate(n=Sum("redelivered", default=0))["n"]
        for model in (Aircraft, Unassigned)
    )
    delays = Delay.objects.filter(run_id=run.pk).aggregate(n=Sum("redelivered", default=0))["n"]
    return {"board": int(board), "delays": int(delays)}


def _carrier_table(outcome: Outcome) -> Iterator[str]:
    names = carrier_names()
    yield f"{'delays: carrier':<32}{'flights':>9}{'cancelled':>11}{'mean delay, departure':>23}{'arrival':>11}"
    ranked = sorted(outcome.carriers.items(), key=lambda item: -item[1].flights)
    for carrier, totals in ranked:
        flown = max(totals.flights - totals.cancelled, 1)
        yield (
            f"{carrier} {names.get(carrier, '')[:28]:<29}{totals.flights:>9,}{totals.cancelled:>11,}"
            f"{totals.departure_delay / flown:>19.1f} min{totals.arrival_delay / flown:>7.1f} min"
        )


def _aircraft_table(outcome: Outcome) -> Iterator[str]:
    yield (
        f"board: {len(outcome.aircraft):,} aircraft, and {outcome.unassigned:,} flights of which none is known. "
        "The busiest:"
    )
    ranked = sorted(outcome.aircraft.items(), key=lambda item: -item[1].legs)
    for tail, last in ranked[:5]:
        yield f"{tail:<8}{last.legs:>5} legs, the last: {last.flight}"
