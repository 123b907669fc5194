"""A report's page in a browser: complete, without errors, as wide as its window, and safe against injected content."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from django_mqueue.drawing.charts import Line, described
from django_mqueue.drawing.scales import COUNT
from tests.support.browser import NARROW, Page, chrome

from .made_reports import HOSTILE, START, empty, hostile, shop

__all__ = ["chrome"]

pytestmark = pytest.mark.once

PICTURES = "MQUEUE_PICTURES"


def opened(chrome: Chrome, folder: Path, text: str) -> Page:
    file = folder / "report.html"
    file.write_text(text, encoding="utf-8")
    page = Page(chrome, "")
    page.open(file.as_uri())
    return page


def test_a_report_can_be_read_wide_and_narrow_light_and_dark(chrome: Chrome, tmp_path: Path) -> None:
    page = opened(chrome, tmp_path, shop().to_html())
    assert page.find("h1").text == "Report on orders, payments"
    assert len(page.all(".mqueue-chart svg.mqueue-plot")) == 4 * 5
    page.save_all_ways("report")
    folder = Path(os.environ.get(PICTURES) or tmp_path)
    page.picture(tmp_path / "first.png")  # From here on scrollbars are hidden.
    for dark in (False, True):
        page.dark(dark)
        page.width(1280)
        page.picture((tmp_path if dark else folder) / "report.png", 1_700)
    page.dark(False)
    light = page.style("body", "background-color")
    page.dark(True)
    assert page.style("body", "background-color") != light


def test_a_chart_begins_with_the_backlog_from_before_it() -> None:
    """Only the newest 500 hours are drawn. A message waits since hour 0, and another one since hour 600."""
    made = shop()
    steps = [
        replace(made.steps[0], start=START + timedelta(hours=hour), backlog=n)
        for hour, n in ((0, 7), (600, 3))
    ]
    values = [7.0] * 499 + [3.0]
    text = replace(made, steps=steps).to_html()
    assert described(Line("backlog", values, "lag"), COUNT) in text
    assert "Only the newest 500 hours." in text


def test_nothing_is_asked_for_and_nothing_runs(chrome: Chrome, tmp_path: Path) -> None:
    text = hostile().to_html()
    assert "<script" not in text
    page = opened(chrome, tmp_path, text)
    assert page.complaints() == []
    assert chrome.title.startswith("Report on ")
    assert len(page.all("h1")) == 1
    assert page.all("img, script, iframe, object, form, a, [onerror]") == []
    (icon,) = page.all("[src], [href], [srcset], [action]")
    assert icon.get_attribute("href") == "data:,"
    requested = chrome.execute_script("return performance.getEntriesByType('resource').map(one => one.name)")
    assert [one for one in requested if not one.startswith(("data:", "file:"))] == []
    page.width(NARROW)
    assert page.overflow() <= 0
    cells = [one.get_attribute("textContent") for one in page.all("section:first-of-type td:first-child")]
    assert cells[:4] == list(HOSTILE[:4]), "told as they are"
    assert "taken" not in page.find("h1").text.replace(HOSTILE[0], "").replace(HOSTILE[1], "").replace(
        HOSTILE[2], ""
    )


def test_a_report_of_nothing_is_a_page_too(chrome: Chrome, tmp_path: Path) -> None:
    page = opened(chrome, tmp_path, empty().to_html())
    assert page.complaints() == []
    assert page.all("svg") == []
    assert "quiet" in page.text_of("table")
