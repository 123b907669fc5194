"""Helpers that read pages as a user sees them: the text of cells, the links of rows."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.test import Client

from .rows import list_url

_ROW = re.compile(r"<tr>(?!<th scope).*?</tr>", re.DOTALL)
_CELL = re.compile(r'<t[hd] class="field-(\w+)[^"]*"[^>]*>(.*?)</t[hd]>', re.DOTALL)
_LINK = re.compile(r'<th class="field-\w+[^"]*"[^>]*><a href="([^"]+)"')
_FIELD = re.compile(
    r'<div class="form-row[^"]*field-(\w+)[^"]*">.*?<div class="readonly">(.*?)</div>', re.DOTALL
)
_TAG = re.compile(r"<[^>]+>")


def text(html: str) -> str:
    return unescape(_TAG.sub("", html)).strip()


def html_of(client: Client, url: str, parameters: dict[str, Any] | None = None) -> str:
    response = client.get(url, parameters or {})
    html = response.content.decode()
    assert response.status_code == 200, (response.status_code, response.headers, text(html))
    return html


def listed(client: Client, page: str, **parameters: str) -> list[dict[str, str]]:
    """Return the rows of a list page: the text of each column by its name."""
    body = html_of(client, list_url(page), parameters).partition('id="result_list"')[2]
    cells = [dict(_CELL.findall(row)) for row in _ROW.findall(body)]
    return [{name: text(html) for name, html in row.items()} for row in cells if row]


def ids(client: Client, **parameters: str) -> list[str]:
    """Return the ids of the messages that a search finds."""
    return [row["id_cell"] for row in listed(client, "message", **parameters)]


def links(client: Client, page: str, **parameters: str) -> list[str]:
    """Return the URLs that the rows of a list page link to."""
    return [unescape(link) for link in _LINK.findall(html_of(client, list_url(page), parameters))]


def shown(client: Client, url: str) -> dict[str, str]:
    """Return the fields of one row's page: their text by name."""
    return {name: text(html) for name, html in _FIELD.findall(html_of(client, url))}


def first_shown(client: Client, page: str) -> dict[str, str]:
    """Return the fields of the page that the list's first row links to."""
    return shown(client, links(client, page)[0])
