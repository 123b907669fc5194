"""A report as one HTML page. Styles and charts are inside, and it loads nothing. All texts are escaped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from ...drawing.charts import Line, chart
from ...drawing.printing import for_terminal
from ...drawing.scales import COUNT, TIME, Unit, count
from .figures import GroupTotals, StepFigures
from .tables import group_of, heading, newest, optional, said, times

if TYPE_CHECKING:
    from .result import Report

GROUPS_DRAWN = 12
"""The maximum number of groups with charts: the groups with the most messages."""
POINTS = 500
"""The maximum number of points in a chart: the newest."""
ROWS = 1_000
"""The maximum number of rows in a table. JSON and CSV have all rows."""
STEPS_SHOWN = 48

_HERE = Path(__file__).parent
_FIGURES = _HERE.parents[1] / "static" / "django_mqueue" / "figures.css"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Even if a text were not escaped, no script would run and nothing would be loaded."""

Pair = tuple[str, str | None]
Cells = Sequence[str]


def page(report: Report) -> str:
    return format_html(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="{}">'
        '<link rel="icon" href="data:,"><title>{}</title><style>{}</style></head>'
        '<body class="mqueue"><main><h1>{}</h1>{}{}{}{}{}{}{}</main></body></html>\n',
        _POLICY,
        _title(report),
        _styles(),
        _title(report),
        _heading(report),
        _topics(report),
        _groups(report),
        _drawings(report),
        _errors(report),
        _keys(report),
        _steps(report),
    )


def _styles() -> SafeString:
    """Return the styles of the charts, which the admin also uses, and the styles of the page."""
    return mark_safe((_HERE / "page.css").read_text() + _FIGURES.read_text())


def _title(report: Report) -> str:
    topics = [for_terminal(one.topic) for one in report.topics]
    more = f" and {len(topics) - 3} more topics" if len(topics) > 3 else ""
    return f"Report on {', '.join(topics[:3])}{more}"


def _heading(report: Report) -> SafeString:
    return format_html(
        "{}{}",
        format_html_join("", "<p>{}</p>", ((line,) for line in heading(report))),
        format_html(
            '<ul class="notes">{}</ul>', format_html_join("", "<li>{}</li>", ((n,) for n in report.notes))
        )
        if report.notes
        else "",
    )


def _topics(report: Report) -> SafeString:
    rows = [
        (
            for_terminal(one.topic), count(one.published), count(one.targeted), count(one.sent_back), count(one.keys),
            count(one.without_key), said(one.first_published), said(one.last_published),
        )
        for one in report.topics
    ]  # fmt: skip
    names = ("Topic", "Published", "For one group", "Sent back", "Keys", "Without a key", "First", "Last")
    return _section("Topics", names, rows, {0})


def _groups(report: Report) -> SafeString:
    rows = [(for_terminal(one.topic), for_terminal(one.group), *_totals(one)) for one in report.groups]
    names = (
        "Topic", "Group", "Published", "Finished", "Dead", "Failures", "Attempts", "To first delivery", "To ack",
        "In flight", "Waiting", "Lag",
    )  # fmt: skip
    return _section("Groups", names, rows, {0, 1}, "Times are p50 / p95 / p99.")


def _totals(one: GroupTotals) -> Cells:
    if one.reads_log:
        return (count(one.published), *[""] * 8, optional(one.lag))
    return (
        count(one.published), count(one.finished), count(one.dead), count(one.failures), count(one.attempts),
        times(one.first_delivery), times(one.ack), count(one.in_flight), count(one.waiting), optional(one.lag),
    )  # fmt: skip


def _drawings(report: Report) -> SafeString:
    found: dict[Pair, list[StepFigures]] = {}
    for one in report.steps:
        found.setdefault((one.topic, one.group), []).append(one)
    busiest = sorted(found, key=lambda pair: -sum(one.published + one.finished for one in found[pair]))
    drawn = sorted(busiest[:GROUPS_DRAWN], key=lambda pair: (pair[0], pair[1] or ""))
    left_out = len(found) - len(drawn)
    return format_html(
        "{}{}",
        format_html_join(
            "", "{}", ((_drawing(f"d{n}", pair, found[pair], report),) for n, pair in enumerate(drawn))
        ),
        format_html("<p>{} more groups, with fewer messages, are not drawn.</p>", count(left_out))
        if left_out
        else "",
    )


def _drawing(ident: str, pair: Pair, steps: Sequence[StepFigures], report: Report) -> SafeString:
    width = timedelta(hours=1) if report.by == "hour" else timedelta(days=1)
    last = steps[-1].start
    first = max(steps[0].start, last - (POINTS - 1) * width)
    places = [first + place * width for place in range((last - first) // width + 1)]
    there = {one.start: one for one in steps}
    note = f"The newest {POINTS} of them." if steps[0].start < first else ""

    def drawn(kind: str, title: str, lines: Sequence[Line], unit: Unit) -> SafeString:
        return chart(f"{ident}-{kind}", title, lines, start=first, step=width, unit=unit, zone=UTC, note=note)

    def counts(name: str) -> list[float | None]:
        return [getattr(there[at], name) if at in there else 0 for at in places]

    def points(name: str, point: str) -> list[float | None]:
        return [getattr(getattr(there[at], name), point) if at in there else None for at in places]

    ends = [Line("dead", counts("dead"), "dead", bars=True), Line("finished", counts("finished"), "finished")]
    charts = [
        drawn(
            "messages",
            f"Messages in each {report.by}",
            [
                Line("published", counts("published"), "published", area=True),
                *(ends if pair[1] is not None else ()),
            ],
            COUNT,
        )
    ]
    if pair[1] is not None:
        backlog = _backlog(places, there)
        if any(value is not None for value in backlog):
            charts.append(
                drawn("backlog", "Not done yet", [Line("backlog", backlog, "lag", area=True)], COUNT)
            )
        for name, title in (("first_delivery", "Time to first delivery"), ("ack", "Time to ack")):
            lines = [Line(point, points(name, point), point) for point in ("p50", "p95", "p99")]
            charts.append(drawn(name, title, lines, TIME))
        if any(one.failures for one in steps):
            lines = [Line("failed attempts", counts("failures"), "dead", bars=True)]
            charts.append(drawn("failures", f"Failed attempts in each {report.by}", lines, COUNT))
    return format_html(
        '<section><h2>{}{}</h2><div class="mqueue-charts">{}</div></section>',
        for_terminal(pair[0]),
        "" if pair[1] is None else f" to {for_terminal(pair[1])}",
        format_html_join("", "{}", ((one,) for one in charts)),
    )


def _backlog(places: Iterable[datetime], there: Mapping[datetime, StepFigures]) -> list[float | None]:
    """Return the backlog at each place. A step in which nothing happened has the backlog of the step before."""
    found: list[float | None] = []
    for at in places:
        found.append(there[at].backlog if at in there else found[-1] if found else None)
    return found


def _errors(report: Report) -> SafeString:
    rows = [
        (
            for_terminal(one.topic), for_terminal(one.group), for_terminal(one.error), count(one.count),
            said(one.first), said(one.last),
            for_terminal(one.example),
        )
        for one in report.errors
    ]  # fmt: skip
    return _section(
        "Errors", ("Topic", "Group", "Error", "Count", "First", "Last", "The newest"), rows, {0, 1, 2, 6}
    )


def _keys(report: Report) -> SafeString:
    rows = [
        (for_terminal(one.topic), for_terminal(one.key), count(one.published), f"{one.share:.1%}")
        for one in report.keys
    ]
    return _section("Hottest keys", ("Topic", "Key", "Published", "Share"), rows, {0, 1})


def _steps(report: Report) -> SafeString:
    steps, left_out = newest(report.steps, STEPS_SHOWN)
    rows = [
        (
            said(one.start), for_terminal(one.topic), group_of(one.group), count(one.published), count(one.finished),
            count(one.dead), count(one.failures), times(one.first_delivery), times(one.ack), optional(one.backlog),
        )
        for one in steps
    ]  # fmt: skip
    names = (
        "From", "Topic", "Group", "Published", "Finished", "Dead", "Failures", "To first delivery", "To ack", "Backlog",
    )  # fmt: skip
    note = "Times are p50 / p95 / p99."
    if left_out:
        note += f" {left_out:,} older rows are left out."
    return _section(f"By {report.by}", names, rows, {0, 1, 2}, note)


def _section(
    title: str, columns: Cells, rows: Sequence[Cells], texts: Collection[int], note: str = ""
) -> SafeString:
    """Return a table; an empty text if it has no rows. On a narrow screen each row is a card.

    ``texts``: the columns that are not numbers.
    """
    if not rows:
        return SafeString("")
    if len(rows) > ROWS:
        note = f"{note} {len(rows) - ROWS:,} more rows are left out; JSON and CSV have all."
    looks = ["" if place in texts else "mqueue-number" for place in range(len(columns))]
    head = format_html_join("", '<th scope="col" class="{}">{}</th>', zip(looks, columns, strict=True))
    body = format_html_join(
        "",
        "<tr>{}</tr>",
        (
            (
                format_html_join(
                    "", '<td data-label="{}" class="{}">{}</td>', zip(columns, looks, row, strict=True)
                ),
            )
            for row in rows[:ROWS]
        ),
    )
    return format_html(
        "<section><h2>{}</h2>{}<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></section>",
        title,
        format_html("<p>{}</p>", note.strip()) if note else "",
        head,
        body,
    )
