"""Simulated calls that inform carriers of their daily totals. Lines are busy at times; one carrier has no number."""

from __future__ import annotations

from .events import CarrierDay

UNREACHABLE = "HA"


class LineBusy(Exception):
    """The line is busy. Another attempt may succeed."""


class NoNumber(Exception):
    """The carrier has no number, so another attempt is useless."""


def call_carrier(day: CarrierDay, *, tried: bool) -> None:
    """Call a carrier about a day. ``tried``: whether an attempt has failed before.

    Raises ``LineBusy`` or ``NoNumber``.
    """
    if day["carrier"] == UNREACHABLE:
        raise NoNumber(f"there is no number of {day['carrier']}")
    if is_busy(day["day"]) and not tried:
        raise LineBusy(f"{day['carrier']} is on the phone")


def is_busy(day: str) -> bool:
    """Return whether all lines are busy at the first attempt: on the first day of a month."""
    return day.endswith("-01")
