"""Form fields for dates and times. Values are always aware, also in projects without ``USE_TZ``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone


class Moment(forms.DateTimeField):
    """A date and time of the current time zone, to the second."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.DateTimeInput({"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S")
        super().__init__(widget=widget, **kwargs)

    def to_python(self, value: Any) -> datetime | None:
        found = super().to_python(value)
        return _aware(found) if found is not None and timezone.is_naive(found) else found


def _aware(moment: datetime) -> datetime:
    """Return the moment with the current time zone.

    Raises ``ValidationError`` for a time that a clock change skips or repeats, as Django does with ``USE_TZ``.
    """
    zone = timezone.get_current_timezone()
    if zone.utcoffset(moment.replace(fold=1 - moment.fold)) != zone.utcoffset(moment):
        raise ValidationError(
            f"This time does not exist, or occurs twice, in the time zone {zone}. Give another time."
        )
    return moment.replace(tzinfo=zone)
