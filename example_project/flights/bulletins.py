"""Carriers are told of their days, over lines that are pretended: all are busy at times, and one carrier has none."""

from __future__ import annotations

from .events import CarrierDay

UNREACHABLE = "HA"


class LineBusy(Exception):
    """Perhaps it is free the next time."""


class NoNumber(Exception):
    """Nobody knows how to reach the carrier: another attempt is of no use."""


def tell(day: CarrierDay, *, tried: bool) -> None:
    """``tried``: whether it has failed before. Raises ``LineBusy`` or ``NoNumber``."""
    if day["carrier"] == UNREACHABLE:
        raise NoNumber(f"there is no number of {day['carrier']}")
    if is_busy(day["day"]) and not tried:
        raise LineBusy(f"{day['carrier']} is on the phone")


def is_busy(day: str) -> bool:
    """On the first of a month all lines are, the first time."""
    return day.endswith("-01")
