"""Helpers that read the tables of topics and groups as a user sees them."""

from __future__ import annotations

import re
from html import unescape

from .looking import text

_ROW = re.compile(r'<tr(?: class="mqueue-topic")? role="row">(.*?)</tr>', re.DOTALL)
_CELL = re.compile(r"<t([hd])([^>]*)>(.*?)</t\1>", re.DOTALL)
_LABEL = re.compile(r'data-label="([^"]*)"')


AGES = ("COUNTS_MAX_AGE", "SURVEY_MAX_AGE", "RATES_MAX_AGE", "BLOCKERS_MAX_AGE", "TOPICS_MAX_AGE")
"""The constants of ``admin.topics.status`` that say for how long each part is cached."""


def rows(html: str) -> dict[str, dict[str, str]]:
    """Return the rows by the name in their first cell: the text of each cell by its label."""
    table = html.partition('<table class="mqueue-standing"')[2].partition("</table>")[0]
    found = {}
    for row in _ROW.findall(table.partition("</thead>")[2]):
        (_, _, name), *cells = _CELL.findall(row)
        labelled = {
            label: content for _, attributes, content in cells for label in _LABEL.findall(attributes)
        }
        found[text(name)] = {label: " ".join(text(content).split()) for label, content in labelled.items()}
    return found


def hrefs(html: str) -> list[str]:
    """Return the URLs of the overview's links."""
    part = html.partition('id="mqueue-overview"')[2].partition("</section>")[0]
    return [unescape(one) for one in re.findall(r'href="([^"]+)"', part)]


def tiles(html: str) -> dict[str, str]:
    """Return the values of the tiles by their names."""
    found = re.findall(r"<div><dt>(.*?)</dt><dd[^>]*>(.*?)</dd></div>", html, re.DOTALL)
    return {text(name): " ".join(text(value).split()) for name, value in found}
