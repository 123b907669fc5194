"""Charts of a topic or a group: throughput (published, finished, dead), lag and latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...drawing.charts import Line, Values, chart
from ...drawing.scales import COUNT, Unit, count_step, short_count, time_step
from ...inspect import Lag, Latency, Percentiles, Rates, Series
from ..base.display import Text, duration, printable

MS = timedelta(milliseconds=1)
GROUPS_DRAWN = 3
STYLES = ("finished", "second", "third")
PARTLY_READ = gettext_lazy("Computed from a part of the messages.")
MINIMUMS_NOTE = gettext_lazy(
    "Numbers before %(time)s are minimums, or missing: messages older than the retention may have been deleted."
)
FINISHED = gettext_lazy(
    "Numbers of finished messages before %(time)s are incomplete: messages were deleted, or the group was"
    " registered or reset."
)
INCOMPLETE = gettext_lazy("The last step is left out, because it is incomplete.")


@dataclass(frozen=True)
class Span:
    """A time range of the charts.

    ``points``: the number of steps for counts. ``coarse``: the number of steps for latencies, which have fewer values.
    """

    name: str
    title: Text
    span: timedelta
    points: int
    coarse: int


SPANS: Mapping[str, Span] = {
    "hour": Span("hour", gettext_lazy("The last hour"), timedelta(hours=1), 60, 12),
    "day": Span("day", gettext_lazy("The last day"), timedelta(days=1), 96, 24),
}


def span_of(name: str | None) -> Span:
    """Return the span with this name, or the hour if the name is missing or unknown."""
    return SPANS.get(name or "hour", SPANS["hour"])


def rate_step(top: float, most: int) -> float:
    """Return the step of the axis. Rates may be fractions of 1."""
    return count_step(top * 100, most) / 100 if 0 < top <= most else count_step(top, most)


PER_MINUTE = Unit(rate_step, lambda rate: f"{rate:.3g}" if rate < 10 else short_count(rate))
TIME = Unit(time_step, lambda ms: duration(timedelta(milliseconds=ms)))


def throughput(rates: Rates, finished: Sequence[tuple[str, Series]] = ()) -> SafeString:
    """Return the chart of messages per minute.

    ``finished``: (name, series) for a topic's groups. A group's own series is in ``rates``.
    """
    published_from, finished_from = rates.published_from, rates.finished_from
    drawn = [
        Line(_("published"), _per_minute(rates, rates.published, published_from), "published", area=True)
    ]
    series = [rates.published, rates.dead]
    if rates.finished is not None:
        finished = [(_("finished"), rates.finished)]
    for (name, one), style in zip(finished, STYLES, strict=False):
        drawn.append(Line(name, _per_minute(rates, one, finished_from or published_from), style))
        series.append(one)
    if rates.skipped is not None and any(rates.skipped.values):
        drawn.append(Line(_("skipped"), _per_minute(rates, rates.skipped, finished_from), "second"))
        series.append(rates.skipped)
    dead = _("dead") if any(rates.dead.values) else _("dead (none)")
    drawn.append(Line(dead, _per_minute(rates, rates.dead, None), "dead", bars=True))
    return chart(
        "mqueue-throughput", _("Messages per minute"), drawn,
        start=rates.start, step=rates.step, unit=PER_MINUTE, zone=timezone.get_current_timezone(),
        note=exactness(rates, series), gettext=_,
    )  # fmt: skip


def with_gaps(rates: Rates, values: Sequence[float], since: datetime | None) -> Values:
    """Return the values, with None for each step whose count is not known.

    A step is not known if nothing was counted in it and it begins before ``since``. The last step is not known if it
    has not ended.
    """
    since = since or rates.start
    found: list[float | None] = [
        None if not value and rates.start + index * rates.step < since else value
        for index, value in enumerate(values)
    ]
    if found and rates.at is not None and rates.start + len(found) * rates.step > rates.at:
        found[-1] = None
    return found


def _per_minute(rates: Rates, series: Series, since: datetime | None) -> Values:
    minutes = rates.step / timedelta(minutes=1)
    return with_gaps(rates, [value / minutes for value in series.values], since)


def exactness(rates: Rates, series: Sequence[Series]) -> str:
    """Return a note that says which numbers of the chart are not exact."""
    notes = [
        PARTLY_READ if any(one.how == "about" for one in series) else "",
        _since(MINIMUMS_NOTE, rates, rates.published_from),
        _since(FINISHED, rates, rates.finished_from),
        INCOMPLETE if rates.at is not None else "",
    ]
    return " ".join(str(note) for note in notes if note)


def _since(text: Text, rates: Rates, since: datetime | None) -> str:
    """Return ``text`` with the moment, or "" if the moment is not within the chart."""
    if since is None or since <= rates.start:
        return ""
    return text % {"time": f"{since.astimezone(timezone.get_current_timezone()):%H:%M}"}


def lag_over_time(lag: Lag, rates: Rates) -> SafeString:
    series = [rates.published, *([rates.finished] if rates.finished else [])]
    is_exact = {lag.total.how, *(one.how for one in series)} == {"exact"}
    notes = [
        _("Calculated backwards from the current lag, with the messages published and finished since then."),
        "" if is_exact else _("Approximate: not all of these numbers are exact."),
        _since(FINISHED, rates, rates.finished_from),
    ]
    return chart(
        "mqueue-lag", _("Lag"),
        [Line(_("messages not done"), lag_values(lag.total.value, rates), "lag", area=True)],
        start=rates.start, step=rates.step, unit=COUNT, zone=timezone.get_current_timezone(),
        note=" ".join(note for note in notes if note), gettext=_,
    )  # fmt: skip


def lag_values(now: int, rates: Rates) -> Values:
    """Return the lag at the end of each step. The last value is the current lag, ``now``.

    Inexact rates never make a value negative. A value is None if not all messages published and
    finished since then are known.
    """
    points = len(rates.published.values)
    if rates.finished is None:
        return [None] * points
    since = max(rates.published_from or rates.start, rates.finished_from or rates.start)
    found: list[float | None] = []
    at = float(now)
    skipped = rates.skipped.values if rates.skipped else (0,) * points
    done = [finished + other for finished, other in zip(rates.finished.values, skipped, strict=True)]
    steps = zip(range(points), rates.published.values, done, strict=True)
    for index, published, finished in reversed(list(steps)):
        is_known = not found or rates.start + (index + 1) * rates.step >= since
        found.append(max(at, 0.0) if is_known else None)
        at += finished - published
    return found[::-1]


def latency_chart(latency: Latency) -> SafeString:
    """Return the chart of latencies: percentiles of the time from publication to the end of handling."""

    def part(name: str) -> Values:
        return [None if step.done is None else getattr(step.done, name) / MS for step in latency.steps]

    names = {
        "p50": _("half of them within (p50)"), "p95": _("95 % within (p95)"), "p99": _("99 % within (p99)"),
    }  # fmt: skip
    note = _("From publish to done. A gap: no message was finished in this step.")
    return chart(
        "mqueue-latency", _("How long messages take"),
        [Line(text, part(name), name) for name, text in names.items()],
        start=latency.start, step=latency.step, unit=TIME, zone=timezone.get_current_timezone(),
        note=f"{note} {PARTLY_READ}" if latency.how == "about" else note, gettext=_,
    )  # fmt: skip


def percentiles(found: Percentiles | None) -> list[tuple[str, timedelta]]:
    return [] if found is None else [("p50", found.p50), ("p95", found.p95), ("p99", found.p99)]


def busiest(rates: Mapping[tuple[str, str | None], Rates]) -> list[tuple[str, Series]]:
    """Return the (name, series) of the groups that finished the most messages."""
    found = [
        (_("finished by %(group)s") % {"group": printable(pair[1])}, one.finished)
        for pair, one in rates.items()
        if pair[1] is not None and one.finished is not None
    ]
    return sorted(found, key=lambda pair: -pair[1].total.value)[:GROUPS_DRAWN]
