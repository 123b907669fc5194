"""Numbers and times as sentences and tables have them."""

from __future__ import annotations

from datetime import timedelta

from ..policy.figures import ABOUT, AT_LEAST, Figure

NAMES_SHOWN = 10


def number(figure: Figure) -> str:
    """A figure, saying how exact it is: ``12``, ``at least 1,000``, ``about 98,000 (± 1,200)``."""
    if figure.how == AT_LEAST:
        return f"at least {figure.value:,}"
    if figure.how == ABOUT:
        return f"about {figure.value:,} (± {figure.error:,})"
    return f"{figure.value:,}"


def count(figure: Figure | int, one: str, many: str = "") -> str:
    """A number of things: ``1 message``, ``no messages``, ``at least 1,000 messages``."""
    known = figure if isinstance(figure, Figure) else Figure(figure)
    if not known.value and known.how != ABOUT:
        return f"no {many or one + 's'}"
    return f"{number(known)} {one if known.value == 1 else many or one + 's'}"


def ago(age: timedelta) -> str:
    """How long something is ago or takes, in the unit that tells: ``0.4 s``, ``12 s``, ``3 min``, ``5 h``, ``2 d``."""
    seconds = max(age.total_seconds(), 0.0)
    if seconds < 10:
        return f"{seconds:.1f}\u00a0s"
    for unit, size, until in (("s", 1, 120), ("min", 60, 7_200), ("h", 3_600, 172_800)):
        if seconds < until:
            return f"{seconds / size:,.0f}\u00a0{unit}"
    return f"{seconds / 86_400:,.0f}\u00a0d"


def listed(names: list[str] | tuple[str, ...]) -> str:
    """Names in a sentence: the first ten, and how many more."""
    shown = ", ".join(names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN:,} more"
