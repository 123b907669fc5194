"""A report as one HTML page. Styles and charts are inside, and it loads nothing. All texts are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from ...drawing.charts import Line, chart
from ...drawing.scales import COUNT, TIME, Unit, count
from ...printing import for_terminal
from .figures import StepFigures
from .tables import Section, heading, sections

if TYPE_CHECKING:
    from .result import Report

GROUPS_DRAWN = 12
"""The maximum number of groups with charts: the groups with the most messages."""
POINTS = 500
"""The maximum number of points in a chart: the newest."""
ROWS = 1_000
"""The maximum number of rows in a table. JSON and CSV have all rows."""

_HERE = Path(__file__).parent
_FIGURES = _HERE.parents[1] / "static" / "django_mqueue" / "figures.css"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The browser runs no script and loads nothing, even if a text is not escaped."""

Pair = tuple[str, str | None]


def page(report: Report) -> str:
    topics, groups, steps, errors, keys, items = map(_table, sections(report))
    return format_html(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="{}">'
        '<link rel="icon" href="data:,"><title>{}</title><style>{}</style></head>'
        '<body class="mqueue"><main><h1>{}</h1>{}{}{}{}{}{}{}{}</main></body></html>\n',
        _POLICY, _title(report), _styles(), _title(report), _heading(report), topics, groups, _drawings(report),
        items, errors, keys, steps,
    )  # fmt: skip


def _styles() -> SafeString:
    """Return the styles of the charts, which the admin also uses, and the styles of the page."""
    return mark_safe((_HERE / "page.css").read_text(encoding="utf-8") + _FIGURES.read_text(encoding="utf-8"))


def _title(report: Report) -> str:
    topics = [for_terminal(one.topic) for one in report.topics]
    more = f" and {len(topics) - 3} more topics" if len(topics) > 3 else ""
    return f"Report on {', '.join(topics[:3])}{more}"


def _heading(report: Report) -> SafeString:
    notes = format_html_join("", "<li>{}</li>", ((note,) for note in report.notes))
    below = format_html('<ul class="notes">{}</ul>', notes) if notes else ""
    return format_html("<p>{}</p>{}", heading(report), below)


def _drawings(report: Report) -> SafeString:
    found: dict[Pair, list[StepFigures]] = {}
    for one in report.steps:
        found.setdefault((one.topic, one.group), []).append(one)
    busiest = sorted(found, key=lambda pair: -sum(one.published + one.finished for one in found[pair]))
    drawn = sorted(busiest[:GROUPS_DRAWN], key=lambda pair: (pair[0], pair[1] or ""))
    drawings = [_drawing(f"d{number}", pair, found[pair], report.by) for number, pair in enumerate(drawn)]
    if left_out := len(found) - len(drawn):
        drawings.append(
            format_html("<p>{} more groups, with fewer messages, are not drawn.</p>", count(left_out))
        )
    return format_html_join("", "{}", ((one,) for one in drawings))


def _drawing(ident: str, pair: Pair, steps: Sequence[StepFigures], by: str) -> SafeString:
    width = timedelta(hours=1) if by == "hour" else timedelta(days=1)
    last = steps[-1].start
    first = max(steps[0].start, last - (POINTS - 1) * width)
    moments = [first + number * width for number in range((last - first) // width + 1)]
    at = {one.start: one for one in steps}
    note = f"Only the newest {POINTS} {by}s." if steps[0].start < first else ""
    charts: list[SafeString] = []

    def draw(kind: str, title: str, lines: Sequence[Line], unit: Unit = COUNT) -> None:
        charts.append(
            chart(f"{ident}-{kind}", title, lines, start=first, step=width, unit=unit, zone=UTC, note=note)
        )

    def counts(name: str) -> list[float | None]:
        return [getattr(at[moment], name) if moment in at else 0 for moment in moments]

    def points(name: str, point: str) -> list[float | None]:
        return [getattr(getattr(at[moment], name), point) if moment in at else None for moment in moments]

    lines = [Line("published", counts("published"), "published", area=True)]
    if pair[1] is not None:
        lines += [
            Line("dead", counts("dead"), "dead", bars=True),
            Line("finished", counts("finished"), "finished"),
        ]
    draw("messages", f"Messages in each {by}", lines)
    if pair[1] is not None:
        earlier = [one.backlog for one in steps if one.start < first]
        backlog = _backlog(moments, at, earlier[-1] if earlier else None)
        if any(value is not None for value in backlog):
            draw("backlog", "Backlog", [Line("backlog", backlog, "lag", area=True)])
        for name, title in (("first_delivery", "Time to first delivery"), ("ack", "Time to ack")):
            draw(
                name,
                title,
                [Line(point, points(name, point), point) for point in ("p50", "p95", "p99")],
                TIME,
            )
        if any(one.failures for one in steps):
            failed = [Line("failed attempts", counts("failures"), "dead", bars=True)]
            draw("failures", f"Failed attempts in each {by}", failed)
    return format_html(
        '<section><h2>{}{}</h2><div class="mqueue-charts">{}</div></section>',
        for_terminal(pair[0]),
        "" if pair[1] is None else f" to {for_terminal(pair[1])}",
        format_html_join("", "{}", ((one,) for one in charts)),
    )


def _backlog(
    moments: Iterable[datetime], steps: Mapping[datetime, StepFigures], last: int | None
) -> list[float | None]:
    """Return the backlog at each moment. ``last``: the backlog before the first one; None if it is unknown."""
    found: list[float | None] = []
    for at in moments:
        last = steps[at].backlog if at in steps else last
        found.append(last)
    return found


def _table(section: Section) -> SafeString:
    """Return a table; an empty text if it has no rows. On a narrow screen each row is a card."""
    columns, note = section.columns, section.note
    if not section.rows:
        return SafeString("")
    if len(section.rows) > ROWS:
        note = f"{note} {len(section.rows) - ROWS:,} more rows are left out; JSON and CSV have all."
    classes = ["" if column in section.texts else "mqueue-number" for column in columns]
    head = format_html_join("", '<th scope="col" class="{}">{}</th>', zip(classes, columns, strict=True))
    cell = '<td data-label="{}" class="{}">{}</td>'
    rows = (
        (format_html_join("", cell, zip(columns, classes, row, strict=True)),) for row in section.rows[:ROWS]
    )
    return format_html(
        "<section><h2>{}</h2>{}<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></section>",
        section.title,
        format_html("<p>{}</p>", note.strip()) if note else "",
        head,
        format_html_join("", "<tr>{}</tr>", rows),
    )
