"""Durations and numbers as plain text in the current language."""

from __future__ import annotations

from datetime import timedelta

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..drawing import scales
from .results import AT_LEAST, Figure

_UNITS = {
    "ms": gettext_lazy("%(number)s ms"), "s": gettext_lazy("%(number)s s"), "min": gettext_lazy("%(number)s min"),
    "h": gettext_lazy("%(number)s h"), "d": gettext_lazy("%(number)s d"),
}  # fmt: skip


def duration(time: timedelta) -> str:
    """Return the time that something takes: ``340 ms``, ``3 min``, ``2 h 5 min``."""
    parts = scales.duration_parts(time / timedelta(milliseconds=1))
    return " ".join(_UNITS[unit] % {"number": number} for number, unit in parts)


def age(time: timedelta) -> str:
    """Return the age of an event. An age below 1 s, also a negative one, is ``under 1 s``."""
    return _("under 1 s") if time < timedelta(seconds=1) else duration(time)


def number(figure: Figure) -> str:
    """Return a figure with its accuracy: ``12``, ``at least 1,000``."""
    value = f"{figure.value:,}"
    return _("at least %(number)s") % {"number": value} if figure.how == AT_LEAST else value
