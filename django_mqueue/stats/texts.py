"""Times, durations, numbers and lists of names as plain text in the current language."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..drawing import scales
from .results import AT_LEAST, Figure

_UNITS = {
    "ms": gettext_lazy("%(number)s ms"), "s": gettext_lazy("%(number)s s"), "min": gettext_lazy("%(number)s min"),
    "h": gettext_lazy("%(number)s h"), "d": gettext_lazy("%(number)s d"),
}  # fmt: skip

NAMES_SHOWN = 10


def local_time(when: datetime | None) -> str:
    """Return a time in the current time zone: ``2026-03-01 08:00:00 UTC``."""
    return "?" if when is None else f"{timezone.localtime(when):%Y-%m-%d %H:%M:%S %Z}"


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


def listed(names: Sequence[str], most: int = NAMES_SHOWN) -> str:
    """Return names for a sentence: the first names, and the number of the others."""
    text = ", ".join(names[:most])
    if len(names) <= most:
        return text
    return _("%(names)s and %(count)s more") % {"names": text, "count": f"{len(names) - most:,}"}
