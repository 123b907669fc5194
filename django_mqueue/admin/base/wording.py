"""Numbers and names for sentences."""

from __future__ import annotations

from ...stats.results import AT_LEAST, Figure

NAMES_SHOWN = 10


def number(figure: Figure) -> str:
    """Return a figure with its accuracy: ``12``, ``at least 1,000``."""
    return f"at least {figure.value:,}" if figure.how == AT_LEAST else f"{figure.value:,}"


def count(figure: Figure | int, one: str, many: str = "") -> str:
    """Return a number of things: ``1 message``, ``no messages``, ``at least 1,000 messages``."""
    known = figure if isinstance(figure, Figure) else Figure(figure)
    if not known.value:
        return f"no {many or one + 's'}"
    return f"{number(known)} {one if known.value == 1 else many or one + 's'}"


def listed(names: list[str] | tuple[str, ...], most: int = NAMES_SHOWN) -> str:
    """Return names for a sentence: the first names, and the number of the others."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
