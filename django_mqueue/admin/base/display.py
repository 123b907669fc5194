"""HTML and text for values: moments, keys, long texts, numbers for sentences.

Returned HTML is escaped. ``cut``, ``first_line``, ``number``, ``count``, ``listed`` and ``time_of`` return plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ...drawing.printing import printable as printable
from ...policy.names import key_of
from ...stats.results import AT_LEAST, Figure

EMPTY = "-"
CELL_CHARACTERS = 100
NAMES_SHOWN = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Column = Callable[[Any, Any], str]


def moment(when: datetime | int | None, *, short: bool = False) -> str:
    """Return a datetime, or epoch milliseconds, as HTML in the current time zone. None and 0 mean never.

    ``short``: milliseconds and time zone are only in the tooltip.
    """
    milliseconds = round(when.timestamp() * 1000) if isinstance(when, datetime) else when
    if not milliseconds:
        return EMPTY
    try:
        then = (_EPOCH + timedelta(milliseconds=milliseconds)).astimezone(timezone.get_current_timezone())
    except OverflowError:
        return str(milliseconds)
    seconds = f"{then:%Y-%m-%d %H:%M:%S}"
    whole = f"{seconds}.{then.microsecond // 1000:03d} {then:%Z}"
    return format_html(
        '<time class="mqueue-moment" datetime="{}" title="{}, epoch {} ms">{}</time>',
        then.isoformat(timespec="milliseconds"),
        whole,
        milliseconds,
        seconds if short else whole,
    )


def moment_column(field: str, description: str, *, short: bool = False) -> Column:
    """Return a column that shows a field of the row as a moment."""

    @admin.display(description=description)
    def show(page: Any, row: Model) -> str:
        return moment(getattr(row, field), short=short)

    return show


def column(field: str, description: str) -> Column:
    """Return a column with a shorter name than the model's field."""

    @admin.display(description=description)
    def show(page: Any, row: Model) -> Any:
        value = getattr(row, field)
        return name(value) if isinstance(value, str) else value

    return show


def key(partition: str) -> str:
    """Return a partition as its key. A partition of keyless messages is shown by its number."""
    if not partition:
        return EMPTY
    if key_of(partition) is None:
        return format_html('<em class="mqueue-name">keyless {}</em>', partition.strip())
    return name(partition)


@admin.display(description="key")
def key_column(page: Any, row: Any) -> str:
    return key(row.partition_key)


def cut(text: str, limit: int = CELL_CHARACTERS) -> str:
    """Return ``text`` on one line, cut after ``limit`` characters, for a cell of a list."""
    line = " ".join(printable(text[: limit * 4]).split())
    return line if len(line) <= limit and len(text) <= limit * 4 else line[:limit] + "…"


def first_line(error: str) -> str:
    """Return the first line of an error, without the traceback."""
    return error.partition("\n")[0]


def name(text: str) -> str:
    """Return a name as HTML. A long name wraps."""
    return format_html('<span class="mqueue-name">{}</span>', printable(text)) if text else EMPTY


def cell(text: str) -> str:
    return format_html('<span class="mqueue-text">{}</span>', cut(text)) if text else EMPTY


def block(text: str) -> SafeString:
    """Return a text of several lines as HTML, for the page of one row."""
    return format_html('<pre class="mqueue-block">{}</pre>', printable(text))


def quiet(text: str) -> SafeString:
    return format_html('<span class="quiet">{}</span>', text)


def badge(kind: str, text: str) -> SafeString:
    """Return a state as a badge. ``kind`` (good, waiting, bad, over) names its colour in admin.css."""
    return format_html('<span class="mqueue-badge mqueue-{}">{}</span>', kind, text)


def number(figure: Figure) -> str:
    """Return a figure with its accuracy: ``12``, ``at least 1,000``."""
    return f"at least {figure.value:,}" if figure.how == AT_LEAST else f"{figure.value:,}"


def count(figure: Figure | int, one: str) -> str:
    """Return a number of things: ``1 message``, ``no messages``, ``at least 1,000 messages``."""
    known = figure if isinstance(figure, Figure) else Figure(figure)
    if not known.value:
        return f"no {one}s"
    return f"{number(known)} {one if known.value == 1 else one + 's'}"


def listed(names: Sequence[str], most: int = NAMES_SHOWN) -> str:
    """Return names for a sentence: the first names, and the number of the others."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def time_of(seconds: float) -> str:
    """Return a setting in seconds for a sentence: ``1 second``, ``0.5 seconds``, ``2 minutes``."""
    if seconds >= 120 and seconds % 60 == 0:
        return f"{seconds / 60:g} minutes"
    return f"{seconds:g} second{'' if seconds == 1 else 's'}"
