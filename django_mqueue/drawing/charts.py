"""Charts as SVG, drawn on the server by pure functions of numbers.

The SVG has no script and no style: CSS classes determine the colours. A chart is as wide as its container. Its lines
are drawn in a box that stretches. Its texts are outside this box, at percentages, so that they keep their size. Below
the chart is a table of the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import groupby

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ..printing import printable
from .scales import Unit, moments, top_of

HEIGHT = 150
"""The height of the box of lines, in pixels."""
ABOVE, BELOW = 18, 22
"""The space for the highest label, and for the labels of the time axis, in pixels."""
SPARK_HEIGHT = 24

Values = Sequence[float | None]
EMPTY_HTML = SafeString("")

Translate = Callable[[str], str]
"""``gettext`` on the admin's pages. Reports are in English and run without Django's settings: they use ``str``."""


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    ``values``: one value for each step. An unknown value is None, and leaves a gap. ``css_class``: the end of the name
    of a class in figures.css (``mqueue-line-…``). ``area``: fill the area between the line and the axis. ``bars``: draw
    a vertical bar for each value above 0, instead of a line; for rare events.
    """

    name: str
    values: Values
    css_class: str
    area: bool = False
    bars: bool = False


def chart(
    ident: str,
    title: str,
    lines: Sequence[Line],
    *,
    start: datetime,
    step: timedelta,
    unit: Unit,
    zone: tzinfo,
    note: str = "",
    gettext: Translate = str,
) -> SafeString:
    """Return a chart of lines over a time that begins at ``start``, with one value for each ``step``.

    ``ident``: an HTML id that is unique on the page. ``zone``: the time zone of the labels. ``note``: a text below the
    chart, for example that the numbers are not exact. ``gettext`` translates the chart's own texts.
    """
    title = printable(title)
    points = max((len(line.values) for line in lines), default=0)
    known = any(value is not None for line in lines for value in line.values)
    legend = format_html_join(
        "", "<li>{}{}</li>", ((_sample(line.css_class), printable(line.name)) for line in lines)
    )
    return format_html(
        '<figure class="mqueue-chart"><figcaption>{}</figcaption><ul class="mqueue-legend">{}</ul>{}{}{}</figure>',
        title,
        legend,
        _plot(ident, title, lines, start, step * points, unit, zone, gettext)
        if known
        else format_html('<p class="mqueue-nothing">{}</p>', gettext("Nothing is known of this time.")),
        format_html('<p class="help">{}</p>', note) if note else EMPTY_HTML,
        _table(ident, title, lines, start, step, unit, zone, gettext) if known else EMPTY_HTML,
    )


def _plot(
    ident: str,
    title: str,
    lines: Sequence[Line],
    start: datetime,
    span: timedelta,
    unit: Unit,
    zone: tzinfo,
    gettext: Translate,
) -> SafeString:
    marks = unit.marks(top_of([line.values for line in lines]))
    points = max(len(line.values) for line in lines)
    grid = [(ABOVE + HEIGHT * (1 - mark / marks[-1]), unit.say(mark)) for mark in marks]
    across = format_html_join(
        "",
        '<line class="mqueue-grid" x1="0" x2="100%" y1="{}" y2="{}"/>',
        ((_number(y), _number(y)) for y, _ in grid),
    )
    sides = format_html_join(
        "",
        '<text class="mqueue-tick" x="2" y="{}">{}</text>',
        ((_number(y - 4), text) for y, text in grid[1:]),
    )
    along = format_html_join(
        "",
        '<line class="mqueue-grid" x1="{0}%" x2="{0}%" y1="{1}" y2="{2}"/>'
        '<text class="mqueue-tick" x="{0}%" y="{3}" text-anchor="middle">{4}</text>',
        (
            (_number(place * 100), ABOVE + HEIGHT, ABOVE + HEIGHT + 4, ABOVE + HEIGHT + 17, text)
            for place, text in moments(start, span, zone, gettext=gettext)
            if 0.04 <= place <= 0.96
        ),
    )
    drawn = format_html_join("", "{}", ((_draw_line(line, HEIGHT, marks[-1]),) for line in lines))
    return format_html(
        '<svg class="mqueue-plot" role="img" aria-labelledby="{0}-title {0}-desc" width="100%" height="{1}">'
        '<title id="{0}-title">{2}</title><desc id="{0}-desc">{3}</desc>{4}'
        '<svg x="0" y="{5}" width="100%" height="{6}" viewBox="0 0 {7} {6}" preserveAspectRatio="none">{8}</svg>'
        "{9}{10}</svg>",
        ident,
        ABOVE + HEIGHT + BELOW,
        title,
        " ".join(described(line, unit, gettext) for line in lines),
        across,
        ABOVE,
        HEIGHT,
        points,
        drawn,
        along,
        sides,
    )


def described(line: Line, unit: Unit, gettext: Translate = str) -> str:
    """Return a sentence with the last, the lowest and the highest value of a line."""
    known = [value for value in line.values if value is not None]
    name = printable(line.name)
    if not known:
        return gettext("%(name)s: nothing is known.") % {"name": name}
    values = {"last": unit.say(known[-1]), "lowest": unit.say(min(known)), "highest": unit.say(max(known))}
    return gettext("%(name)s: last %(last)s, lowest %(lowest)s, highest %(highest)s.") % {
        "name": name,
        **values,
    }


def _table(
    ident: str,
    title: str,
    lines: Sequence[Line],
    start: datetime,
    step: timedelta,
    unit: Unit,
    zone: tzinfo,
    gettext: Translate,
) -> SafeString:
    """Return a table of the values, newest first. The times include the date if the chart covers over 12 hours."""
    points = max(len(line.values) for line in lines)
    unknown = gettext("not known")
    form = "%Y-%m-%d %H:%M" if step * points > timedelta(hours=12) else "%H:%M:%S"
    head = format_html_join(
        "", '<th scope="col" class="mqueue-number">{}</th>', ((printable(line.name),) for line in lines)
    )
    rows = format_html_join(
        "",
        '<tr><th scope="row">{}</th>{}</tr>',
        (
            (
                (start + place * step).astimezone(zone).strftime(form),
                format_html_join(
                    "",
                    '<td class="mqueue-number">{}</td>',
                    ((_said(line.values, place, unit, unknown),) for line in lines),
                ),
            )
            for place in reversed(range(points))
        ),
    )
    return format_html(
        '<details id="{}-numbers"><summary>{}</summary>'
        '<div class="mqueue-scroll mqueue-tall" tabindex="0">'
        '<table><caption class="visually-hidden">{}</caption><thead><tr><th scope="col">{}</th>{}</tr></thead>'
        "<tbody>{}</tbody></table></div></details>",
        ident,
        gettext("%(title)s: the numbers") % {"title": title},
        title,
        gettext("From"),
        head,
        rows,
    )


def _said(values: Values, place: int, unit: Unit, unknown: str) -> str:
    value = values[place] if place < len(values) else None
    return unknown if value is None else unit.say(value)


def sparkline(values: Values, label: str, css_class: str) -> SafeString:
    """Return a small line without axes. ``label``: the text that a screen reader reads."""
    label = printable(label)
    top = max(top_of([values]), 1)
    return format_html(
        '<svg class="mqueue-spark" role="img" aria-label="{}" width="120" height="{}" viewBox="0 0 {} {}"'
        ' preserveAspectRatio="none"><title>{}</title>{}</svg>',
        label,
        SPARK_HEIGHT,
        max(len(values), 1),
        SPARK_HEIGHT,
        label,
        _draw_line(Line("", values, css_class, area=True), SPARK_HEIGHT - 2, top, shift=1),
    )


def _sample(css_class: str) -> SafeString:
    return format_html(
        '<svg class="mqueue-sample" aria-hidden="true" width="24" height="8" viewBox="0 0 24 8">'
        '<path class="mqueue-line mqueue-line-{}" d="M0 4H24" fill="none"/></svg>',
        css_class,
    )


def _draw_line(line: Line, height: float, top: float, shift: float = 0) -> SafeString:
    """Draw a line in a box that is one unit wide for each value. A value is drawn in the middle of its step."""
    path, area, dots = [], [], []
    if line.bars:
        foot = _number(shift + height)
        path = [
            f"M{_number(place + 0.5)} {foot}V{_number(shift + height * (1 - value / top))}"
            for place, value in enumerate(line.values)
            if value
        ]
    for run in () if line.bars else runs(line.values):
        places = [(_number(place + 0.5), _number(shift + height * (1 - value / top))) for place, value in run]
        if len(places) == 1:
            # A line of length 0: its round ends make it a dot.
            dots.append(f"M{places[0][0]} {places[0][1]}h0")
        else:
            path.append("M" + "L".join(f"{x} {y}" for x, y in places))
            foot = _number(shift + height)
            area.append(
                f"M{places[0][0]} {foot}L"
                + "L".join(f"{x} {y}" for x, y in places)
                + f"L{places[-1][0]} {foot}Z"
            )
    stroked = (
        '<path class="mqueue-line mqueue-line-{}" d="{}" fill="none" vector-effect="non-scaling-stroke"/>'
    )
    dotted = stroked.replace(' mqueue-line-{}"', ' mqueue-line-{} mqueue-dot"')
    parts = (
        ('<path class="mqueue-area mqueue-area-{}" d="{}"/>', area if line.area else []),
        (stroked, path),
        (dotted, dots),
    )
    return format_html_join(
        "", "{}", ((format_html(shape, line.css_class, "".join(drawn)),) for shape, drawn in parts if drawn)
    )


def runs(values: Values) -> Iterable[list[tuple[int, float]]]:
    """Yield each run of known values, as pairs of index and value."""
    for _, run in groupby(enumerate(values), key=lambda pair: pair[1] is None):
        if known := [(place, value) for place, value in run if value is not None]:
            yield known


def _number(value: float) -> str:
    """Format a number with at most two decimals, which is finer than any screen."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
