"""Charts of a topic or a group: throughput (published, finished, dead), lag and latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.safestring import SafeString

from ...drawing.charts import Line, Values, chart
from ...drawing.scales import COUNT, TIME, Unit, count_step, short_count
from ...inspect import Lag, Latency, Percentiles, Rates, Series
from ..base.display import printable

MS = timedelta(milliseconds=1)
GROUPS_DRAWN = 3
LOOKS = ("finished", "second", "third")
PARTLY_READ = "Computed from a part of the messages."
AT_LEAST = (
    "Numbers before {} are minimums, or missing: messages older than the retention may have been deleted."
)
FINISHED = (
    "Numbers of finished messages before {} are unknown: the messages have been deleted, or the group was reset or"
    " registered at that time."
)
UNDER_WAY = "The last step is left out, because it is incomplete."


@dataclass(frozen=True)
class Span:
    """A time range of the charts.

    ``points``: the number of steps for counts. ``coarse``: the number of steps for latencies, which have fewer values.
    """

    name: str
    title: str
    span: timedelta
    points: int
    coarse: int


SPANS: Mapping[str, Span] = {
    "hour": Span("hour", "The last hour", timedelta(hours=1), 60, 12),
    "day": Span("day", "The last day", timedelta(days=1), 96, 24),
}


def span_of(name: str | None) -> Span:
    """Return the span with this name, or the hour if the name is missing or unknown."""
    return SPANS.get(name or "hour", SPANS["hour"])


def rate_step(top: float, most: int) -> float:
    """Return the step of the axis. Rates may be fractions of 1."""
    return count_step(top, most) if top > most else count_step(top * 100, most) / 100


PER_MINUTE = Unit("messages per minute", rate_step, short_count)


def throughput(rates: Rates, finished: Sequence[tuple[str, Series]] = ()) -> SafeString:
    """Return the chart of messages per minute.

    ``finished``: (name, series) for a topic's groups. A group's own series is in ``rates``.
    """
    published_from, finished_from = rates.published_from, rates.finished_from
    drawn = [Line("published", _per_minute(rates, rates.published, published_from), "published", area=True)]
    series = [rates.published, rates.dead]
    if rates.finished is not None:
        finished = [("finished", rates.finished)]
    for (name, one), look in zip(finished, LOOKS, strict=False):
        drawn.append(Line(name, _per_minute(rates, one, finished_from or published_from), look))
        series.append(one)
    if rates.skipped is not None and any(rates.skipped.values):
        drawn.append(Line("skipped", _per_minute(rates, rates.skipped, finished_from), "second"))
        series.append(rates.skipped)
    none = "" if any(rates.dead.values) else " (none)"
    drawn.append(Line(f"dead{none}", _per_minute(rates, rates.dead, None), "dead", bars=True))
    return chart(
        "mqueue-throughput", "Messages per minute", drawn,
        start=rates.start, step=rates.step, unit=PER_MINUTE, zone=timezone.get_current_timezone(),
        note=exactness(rates, series),
    )  # fmt: skip


def known(rates: Rates, values: Sequence[float], since: datetime | None) -> Values:
    """Return the values, with None for each step whose count is not known.

    A step is not known if nothing was counted in it and it begins before ``since``. The last step is not known if it
    has not ended.
    """
    since = since or rates.start
    found: list[float | None] = [
        None if not value and rates.start + place * rates.step < since else value
        for place, value in enumerate(values)
    ]
    if found and rates.at is not None and rates.start + len(found) * rates.step > rates.at:
        found[-1] = None
    return found


def _per_minute(rates: Rates, series: Series, since: datetime | None) -> Values:
    minutes = rates.step / timedelta(minutes=1)
    return known(rates, [value / minutes for value in series.values], since)


def exactness(rates: Rates, series: Sequence[Series]) -> str:
    """Return a note that says which numbers of the chart are not exact."""
    notes = [
        PARTLY_READ if any(one.how == "about" for one in series) else "",
        _since(AT_LEAST, rates, rates.published_from),
        _since(FINISHED, rates, rates.finished_from),
        UNDER_WAY if rates.at is not None else "",
    ]
    return " ".join(note for note in notes if note)


def _since(text: str, rates: Rates, since: datetime | None) -> str:
    """Return ``text`` with the moment, or "" if the moment is not within the chart."""
    zone = timezone.get_current_timezone()
    return "" if since is None or since <= rates.start else text.format(f"{since.astimezone(zone):%H:%M}")


def lag_over_time(lag: Lag, rates: Rates) -> SafeString:
    note = "Calculated backwards from the current lag, with the messages published and finished since then."
    series = [rates.published, *([rates.finished] if rates.finished else [])]
    if {lag.total.how, *(one.how for one in series)} != {"exact"}:
        note += " Approximate: not all of these numbers are exact."
    note = f"{note} {_since(FINISHED, rates, rates.finished_from)}".strip()
    return chart(
        "mqueue-lag", "Lag",
        [Line("messages not done", lag_values(lag.total.value, rates), "lag", area=True)],
        start=rates.start, step=rates.step, unit=COUNT, zone=timezone.get_current_timezone(), note=note,
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
    for place, published, finished in reversed(list(steps)):
        is_known = not found or rates.start + (place + 1) * rates.step >= since
        found.append(max(at, 0.0) if is_known else None)
        at += finished - published
    return found[::-1]


def times(latency: Latency) -> SafeString:
    """Return the chart of latencies: percentiles of the time from publication to the end of handling."""

    def part(name: str) -> Values:
        return [None if step.done is None else getattr(step.done, name) / MS for step in latency.steps]

    looks = (("half of them within (p50)", "p50"), ("95 % within (p95)", "p95"), ("99 % within (p99)", "p99"))
    note = "From publish to done. A gap: no message was finished in this step."
    return chart(
        "mqueue-latency", "How long messages take", [Line(text, part(name), name) for text, name in looks],
        start=latency.start, step=latency.step, unit=TIME, zone=timezone.get_current_timezone(),
        note=f"{note} {PARTLY_READ}" if latency.how == "about" else note,
    )  # fmt: skip


def percentiles(found: Percentiles | None) -> list[tuple[str, timedelta]]:
    return [] if found is None else [("p50", found.p50), ("p95", found.p95), ("p99", found.p99)]


def busiest(rates: Mapping[tuple[str, str | None], Rates]) -> list[tuple[str, Series]]:
    """Return the (name, series) of the groups that finished the most messages."""
    found = [
        (f"finished by {printable(group)}", one.finished)
        for (_, group), one in rates.items()
        if group is not None and one.finished is not None
    ]
    return sorted(found, key=lambda pair: -pair[1].total.value)[:GROUPS_DRAWN]
