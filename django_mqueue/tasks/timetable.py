"""Due times of recurring jobs: a cron expression in a time zone, or an interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.core.exceptions import ImproperlyConfigured
from django.utils.timezone import get_default_timezone

from ..policy.durations import to_ms

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Timetable:
    """The due times of a recurring job: by ``cron`` in ``zone``, or each multiple of ``every`` since 1970.

    The package cronsim reads cron expressions: five fields, as in Debian's cron, also when clocks change.
    """

    cron: str | None
    every: timedelta | None
    zone: tzinfo

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Timetable:
        """Read ``cron`` or ``every``, and ``timezone``. Raises ``TypeError`` or ``ValueError`` for invalid values."""
        cron, every, zone = (given.get(name) for name in ("cron", "every", "timezone"))
        if (cron is None) == (every is None):
            raise ValueError("give either cron or every")
        if every is not None:
            ms = to_ms("every", every, least=1)
            if zone is not None or ms % 1000:
                raise ValueError(
                    "every must be whole seconds, without timezone: use cron for a time of the day"
                )
            return cls(None, timedelta(milliseconds=ms), UTC)
        found = cls(str(cron), None, _zone(zone))
        try:
            found.next_after(_EPOCH)
        except ImproperlyConfigured:
            raise
        except (
            Exception
        ) as error:  # CronSimError, or StopIteration if there is no due time in the next 50 years
            raise ValueError(
                f"cron must be a cron expression with due times, not {cron!r}: {error}"
            ) from error
        return found

    def next_after(self, moment: datetime) -> datetime:
        """Return the first due time after an aware datetime, in UTC."""
        if self.every is not None:
            return moment - (moment - _EPOCH) % self.every + self.every
        return self._cron(moment)

    def last_before(self, moment: datetime) -> datetime:
        """Return the last due time before an aware datetime, in UTC."""
        if self.every is not None:
            return moment - ((moment - _EPOCH) % self.every or self.every)
        return self._cron(moment, reverse=True)

    def _cron(self, moment: datetime, *, reverse: bool = False) -> datetime:
        try:
            from cronsim import CronSim
        except ImportError as error:
            raise ImproperlyConfigured(
                "cron needs the package cronsim: install django-mqueue[tasks]"
            ) from error
        times = CronSim(str(self.cron), moment.astimezone(self.zone), reverse=reverse)
        found: datetime = next(times).astimezone(UTC)
        # When clocks go back, an hour occurs twice. cronsim places a moment of it in the first one.
        while not reverse and found <= moment:
            found = next(times).astimezone(UTC)
        while reverse and (later := self._cron(found)) < moment:
            found = later
        return found

    def __str__(self) -> str:
        return f"every {self.every}" if self.every is not None else f"{self.cron} ({self.zone})"


def _zone(name: Any) -> tzinfo:
    if name is None:
        return get_default_timezone()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise ValueError(f"timezone must be a name such as 'Europe/Berlin', not {name!r}") from error
