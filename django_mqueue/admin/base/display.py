"""HTML and text for values: moments, durations, keys, long texts, numbers for sentences.

Returned HTML is escaped. ``printable``, ``problem_text``, ``keyless``, ``cut``, ``first_line``, ``local_time``,
``duration``, ``age``, ``number``, ``listed`` and ``seconds_text`` return plain text.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Model
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ...exceptions import NotRegistered
from ...policy.names import key_of
from ...printing import printable as printable
from ...stats.texts import age as age
from ...stats.texts import duration as duration
from ...stats.texts import listed as listed
from ...stats.texts import local_time as local_time
from ...stats.texts import number as number

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

    Text = StrOrPromise  # A text, or the lazy translation of a text.
else:
    Text = str

EMPTY = "-"
CELL_CHARACTERS = 100
STATE_BADGES = {
    "held": ("good", gettext_lazy("held")),
    "free": ("waiting", gettext_lazy("free")),
    "expired": ("bad", gettext_lazy("expired")),
    "alive": ("good", gettext_lazy("alive")),
    "silent": ("bad", gettext_lazy("silent")),
    "left": ("over", gettext_lazy("left")),
}
"""The kind and the text of the badge of each state of a lease or a subscriber."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Column = Callable[[Any, Any], str]


def moment(when: datetime | int | None, *, short: bool = False) -> str:
    """Return a datetime, or epoch milliseconds, as HTML in the current time zone. None and 0 mean never.

    A script adds the age. ``short``: the script replaces the text with the age, and milliseconds and time zone are only
    in the tooltip.
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
    html = '<time class="mqueue-moment" datetime="{}" title="{}">{}</time>'
    if short:
        html = '<time class="mqueue-moment" datetime="{}" title="{}" data-mqueue-age>{}</time>'
    return format_html(
        html,
        then.isoformat(timespec="milliseconds"),
        _("%(time)s, epoch %(number)s ms") % {"time": whole, "number": milliseconds},
        seconds if short else whole,
    )


def moment_columns(field: str, description: Text) -> tuple[Column, Column]:
    """Return two columns that show a field of the row as a moment: short for the list, long for the row's page."""

    @admin.display(description=description)
    def show_short(page: Any, row: Model) -> str:
        return moment(getattr(row, field), short=True)

    @admin.display(description=description)
    def show(page: Any, row: Model) -> str:
        return moment(getattr(row, field))

    return show_short, show


def done_by(action: Text, group: str, user: str, when: datetime) -> SafeString:
    """Return an action of an operator as HTML: ``Paused by alice, 2026-11-27 09:51:44``. ``group``: left out if ""."""
    text = _("{action} by {user}, {time}")
    if group:
        text = _("{action}, group {group}, by {user}, {time}")
    return format_html(text, action=action, group=name(group), user=name(user), time=moment(when, short=True))


def column(field: str, description: Text) -> Column:
    """Return a column that shows ``field`` under another name."""

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
        return format_html('<em class="mqueue-name">{}</em>', keyless(partition))
    return name(partition)


def keyless(partition: str) -> str:
    return _("keyless %(number)s") % {"number": partition.strip()}


@admin.display(description=gettext_lazy("key"))
def key_column(page: Any, row: Any) -> str:
    return key(row.partition_key)


def problem_text(problem: Exception) -> str:
    """Return an error's text for a page. It leaves out the advice to call a Python function."""
    if isinstance(problem, NotRegistered):
        text = _("Group %(group)s is not registered for topic %(topic)s.")
        return printable(text % {"group": problem.group, "topic": problem.topic})
    return printable(str(problem))


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


def quiet(text: Text) -> SafeString:
    return format_html('<span class="quiet">{}</span>', text)


def badge(kind: str, text: Text) -> SafeString:
    """Return a state as a badge. ``kind`` (good, waiting, bad, over) names its colour in admin.css."""
    return format_html('<span class="mqueue-badge mqueue-{}">{}</span>', kind, text)


def state_badge(state: str) -> SafeString:
    """Return the badge of a lease's or a subscriber's state."""
    return badge(*STATE_BADGES.get(state, ("over", state)))


def seconds_text(seconds: float) -> str:
    """Return a setting in seconds for a sentence: ``1 second``, ``0.5 seconds``, ``2 minutes``."""
    if seconds >= 120 and seconds % 60 == 0:
        minutes = int(seconds // 60)
        return ngettext("%(number)s minute", "%(number)s minutes", minutes) % {"number": f"{minutes:,}"}
    whole = int(seconds) if seconds == int(seconds) else 2  # A fraction needs a plural form.
    return ngettext("%(number)s second", "%(number)s seconds", whole) % {"number": f"{seconds:,.15g}"}
