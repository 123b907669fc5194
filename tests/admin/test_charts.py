"""Charts and their axes: pure functions of numbers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import pytest
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from django_mqueue.admin.base import display
from django_mqueue.admin.topics.charts import PER_MINUTE
from django_mqueue.drawing.charts import Line, chart, described, runs, sparkline
from django_mqueue.drawing.scales import COUNT, TIME, count, duration, moments, short_count

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def drawn(*lines: Line, unit=COUNT, step=MINUTE, note="", zone=UTC) -> ElementTree.Element:  # type: ignore[no-untyped-def]
    html = chart("rate", "Throughput", lines, start=NOON, step=step, unit=unit, zone=zone, note=note)
    return ElementTree.fromstring(html)


def paths(figure: ElementTree.Element, look: str) -> list[str]:
    """Return the paths of the plotted lines, without the samples in the legend."""
    return [
        one.attrib["d"] for one in figure.iterfind(".//svg/svg/path") if look in one.attrib["class"].split()
    ]


def test_a_line_goes_from_bottom_to_top() -> None:
    figure = drawn(Line("published", [0, 50, 100], "published"))
    (d,) = paths(figure, "mqueue-line-published")
    assert d == "M0.5 150L1.5 75L2.5 0"
    box = figure.find(".//svg/svg")
    assert box is not None
    assert box.attrib["viewBox"] == "0 0 3 150"


def test_gaps_stay_gaps() -> None:
    figure = drawn(Line("p50", [1, None, 1, 1, None], "p50", area=True))
    line, dot = paths(figure, "mqueue-line-p50")
    assert (line, dot) == ("M2.5 0L3.5 0", "M0.5 0h0")
    (area,) = paths(figure, "mqueue-area-p50")
    assert area == "M2.5 150L2.5 0L3.5 0L3.5 150Z"
    assert list(runs([None, None])) == []


def test_those_who_cannot_see_it_are_told() -> None:
    figure = drawn(Line("published", [3, None, 7], "published"), Line("dead", [0, 0, 0], "dead"))
    image = figure.find("svg")
    assert image is not None
    assert image.attrib["role"] == "img"
    ids = image.attrib["aria-labelledby"].split()
    texts = {one.attrib.get("id"): one.text for one in image.iter()}
    assert [texts[one] for one in ids] == [
        "Throughput",
        "published: last 7, lowest 3, highest 7. dead: last 0, lowest 0, highest 0.",
    ]
    rows = [["".join(cell.itertext()) for cell in row] for row in figure.iterfind(".//details//tr")]
    assert rows == [
        ["From", "published", "dead"],
        ["12:02:00", "7", "0"],
        ["12:01:00", "not known", "0"],
        ["12:00:00", "3", "0"],
    ]


def test_nothing_known_is_said_and_not_drawn() -> None:
    figure = drawn(Line("p50", [None, None], "p50"))
    assert "Nothing is known of this time." in "".join(figure.itertext())
    assert figure.find("svg") is None
    assert figure.find("details") is None
    assert described(Line("p50", [None], "p50"), TIME) == "p50: nothing is known."


def test_the_texts_of_a_chart_are_translated() -> None:
    lines = [Line("dead", [1, None], "dead")]
    html = chart(
        "rate", "Rate", lines, start=NOON, step=MINUTE, unit=COUNT, zone=UTC, gettext=lambda text: f"«{text}»"
    )
    for text in ("«Rate: the numbers»", "«From»", "«not known»", "«dead: last 1, lowest 1, highest 1.»"):
        assert text in html
    html = chart(
        "rate", "Rate", [], start=NOON, step=MINUTE, unit=COUNT, zone=UTC, gettext=lambda text: f"«{text}»"
    )
    assert "«Nothing is known of this time.»" in html


def test_months_have_the_names_of_djangos_catalogues() -> None:
    with translation.override("de"):
        days = [text for _, text in moments(NOON, timedelta(days=3), UTC, gettext=translation.gettext)]
    assert "03 Mär" in days
    assert "03 Mar" in [text for _, text in moments(NOON, timedelta(days=3), UTC)]


def test_nothing_happened_is_drawn() -> None:
    figure = drawn(Line("published", [0, 0], "published"))
    assert paths(figure, "mqueue-line-published") == ["M0.5 150L1.5 150"]
    assert [one.text for one in figure.iterfind("svg/text")][-1] == "1"


def test_what_is_rare_is_drawn_as_bars() -> None:
    """A line along the axis would suggest constant activity."""
    figure = drawn(Line("published", [4, 4, 4], "published"), Line("dead", [0, 2, None], "dead", bars=True))
    assert paths(figure, "mqueue-line-dead") == ["M1.5 150V75"]
    assert paths(drawn(Line("dead", [0, 0], "dead", bars=True)), "mqueue-line-dead") == []


def test_what_is_said_beneath_it() -> None:
    assert "Sampled." in "".join(drawn(Line("a", [1], "p50"), note="Sampled.").itertext())


def test_no_style_no_script_and_no_name_gets_through() -> None:
    evil = '</title><script>alert("x")</script>\ud800'
    html = chart(
        "rate",
        evil,
        [Line(evil, [1, 2], "published")],
        start=NOON,
        step=MINUTE,
        unit=COUNT,
        zone=UTC,
        note="<b>",
    )
    assert "<script" not in html
    assert "style=" not in html
    html.encode()
    ElementTree.fromstring(html)
    small = sparkline([1, 2], evil, "published")
    assert "<script" not in small
    ElementTree.fromstring(small)


def test_a_sparkline_says_what_it_shows() -> None:
    image = ElementTree.fromstring(sparkline([0, None, 4, 2], "Published: 2 in the last minute", "published"))
    assert image.attrib["aria-label"] == "Published: 2 in the last minute"
    assert image.attrib["viewBox"] == "0 0 4 24"
    ElementTree.fromstring(sparkline([], "Nothing", "published"))


@given(st.lists(st.none() | st.floats(0, 1e15), min_size=1, max_size=80), st.booleans())
def test_whatever_the_numbers_it_is_a_picture(values: list[float | None], is_time: bool) -> None:
    figure = drawn(Line("x", values, "published", area=True), unit=TIME if is_time else COUNT)
    for path in figure.iterfind(".//svg/svg/path"):
        numbers = [float(one) for one in re.findall(r"-?[\d.]+", path.attrib["d"])]
        assert all(-0.01 <= one <= max(len(values), 150) for one in numbers)


@pytest.mark.parametrize(
    ("top", "marks"),
    [
        (0, [0, 1]),
        (1, [0, 1]),
        (3, [0, 1, 2, 3]),
        (7, [0, 2, 4, 6, 8]),
        (100, [0, 50, 100]),
        (130, [0, 50, 100, 150]),
    ],
)
def test_marks_of_numbers_are_whole(top: float, marks: list[float]) -> None:
    assert COUNT.marks(top) == marks


@pytest.mark.parametrize(
    ("top", "marks"),
    [
        (0, ["0 ms", "1 ms"]),
        (7, ["0 ms", "2 ms", "4 ms", "6 ms", "8 ms"]),
        (4_100, ["0 ms", "2 s", "4 s", "6 s"]),
        (50_000, ["0 ms", "15 s", "30 s", "45 s", "1 min"]),
        (100 * 60_000, ["0 ms", "30 min", "1 h", "1 h 30 min", "2 h"]),
        (3 * 86_400_000, ["0 ms", "1 d", "2 d", "3 d"]),
    ],
)
def test_marks_of_times_are_what_people_count_by(top: float, marks: list[str]) -> None:
    assert [TIME.say(one) for one in TIME.marks(top)] == marks


@pytest.mark.parametrize(
    ("top", "marks"),
    [
        (0, ["0", "1"]),
        (1 / 15, ["0", "0.02", "0.04", "0.06", "0.08"]),
        (2 / 15, ["0", "0.05", "0.1", "0.15"]),
        (3, ["0", "1", "2", "3"]),
        (30_000, ["0", "10k", "20k", "30k"]),
    ],
)
def test_marks_of_rates_have_the_decimals_they_need(top: float, marks: list[str]) -> None:
    assert [PER_MINUTE.say(one) for one in PER_MINUTE.marks(top)] == marks


@given(st.floats(0, 1e16), st.sampled_from([COUNT, TIME]))
def test_marks_are_few_and_reach_the_top(top: float, unit) -> None:  # type: ignore[no-untyped-def]
    marks = unit.marks(top)
    assert 2 <= len(marks) <= 5
    assert marks[0] == 0
    assert marks[-1] >= top * (1 - 1e-6)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"), (999.4, "999 ms"), (1_000, "1 s"), (2_540, "2.5 s"), (59_400, "59 s"), (59_600, "1 min"),
        (61_000, "1 min 1 s"), (3_599_999, "1 h"), (7_500_000, "2 h 5 min"), (86_399_000, "1 d"),
        (100 * 3_600_000, "4 d 4 h"), (2_000 * 86_400_000, "2,000 d"),
    ],
)  # fmt: skip
def test_times_in_words(ms: float, text: str) -> None:
    assert duration(ms) == text
    assert display.duration(timedelta(milliseconds=ms)) == text


def test_ages_have_no_milliseconds() -> None:
    for milliseconds in (-5, 400):
        assert display.age(timedelta(milliseconds=milliseconds)) == "under 1 s"
    assert display.age(timedelta(minutes=3)) == "3 min"


def test_numbers_in_words() -> None:
    assert [count(one) for one in (0, 0.25, 2.0, 12.4, 12_345)] == ["0", "0.2", "2", "12", "12,345"]
    assert [short_count(one) for one in (950, 12_000, 1_500_000, 2e9)] == ["950", "12k", "1.5M", "2G"]
    assert [short_count(one) for one in (999_499, 999_500, 999_999_999)] == ["999k", "1M", "1G"]


def test_moments_are_full_ones_of_the_zone() -> None:
    start = NOON + timedelta(minutes=7)
    assert [text for _, text in moments(start, timedelta(hours=1), UTC)] == [
        "12:10", "12:20", "12:30", "12:40", "12:50", "13:00",
    ]  # fmt: skip
    kathmandu = ZoneInfo("Asia/Kathmandu")
    assert [text for _, text in moments(start, timedelta(days=1), kathmandu)] == [
        "18:00",
        "00:00",
        "06:00",
        "12:00",
    ]
    place, text = moments(start, timedelta(hours=1), UTC)[0]
    assert (round(place * 60), text) == (3, "12:10")
    assert len(moments(start, timedelta(days=31), UTC)) <= 6
