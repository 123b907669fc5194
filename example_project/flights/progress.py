"""The progress of a run: bars on a terminal, otherwise a line from time to time."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from django.db.models import Sum
from tqdm import tqdm

from .models import Aircraft, Delay, Run, Unassigned

QUIET = 10.0
"""Seconds between two lines without a terminal."""


def consumed(run: Run) -> dict[str, int]:
    """Return the number of messages of the run that each group has handled, counted by its results."""
    legs = Aircraft.objects.filter(run_id=run.pk).aggregate(total=Sum("legs", default=0))["total"]
    return {
        "board": legs + Unassigned.objects.filter(run_id=run.pk).count(),
        "delays": Delay.objects.filter(run_id=run.pk).count(),
    }


class Progress:
    """One bar for each name, up to ``total``, and the seconds that each name needed for it."""

    def __init__(self, total: int, *names: str) -> None:
        self._total, self._began, self._said = total, time.monotonic(), time.monotonic()
        self._done = dict.fromkeys(names, 0)
        self._seconds: dict[str, float] = {}
        self._bars = {
            name: tqdm(
                total=total,
                desc=f"{name:<9}",
                unit="",
                unit_scale=True,
                position=place,
                disable=not _watched(),
            )
            for place, name in enumerate(names)
        }

    def show(self, done: Mapping[str, int]) -> None:
        for name, count in done.items():
            self._bars[name].update(count - self._done[name])
            if count >= self._total > self._done[name]:
                self._seconds[name] = time.monotonic() - self._began
            self._done[name] = count
        if not _watched() and time.monotonic() - self._said >= QUIET:
            self._said = time.monotonic()
            parts = (f"{name} {count:,}" for name, count in self._done.items())
            print(f"{', '.join(parts)} of {self._total:,}", file=sys.stderr, flush=True)

    def advance(self, name: str, count: int) -> None:
        self.show({name: self._done[name] + count})

    def rate(self, name: str) -> float:
        """Return messages per second: until the last message, or until now if there are more to come."""
        seconds = self._seconds.get(name, time.monotonic() - self._began)
        return self._done[name] / seconds if seconds else 0.0

    def close(self) -> None:
        for shown in self._bars.values():
            shown.close()


def _watched() -> bool:
    return sys.stderr.isatty()
