"""A column of links in the lists of rows, to the pages and operations that the user may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html_join

from .display import EMPTY
from .links import address
from .views import may


@dataclass(frozen=True)
class RowLink:
    """``query``: returns the query of the page for a row, or None if the row has no such page."""

    title: str
    page: str
    rights: tuple[str, ...]
    query: Callable[[Any], Mapping[str, str] | None]


def of_group(row: Any) -> dict[str, str]:
    return {"topic": row.topic, "group": row.consumer_group}


def column(request: HttpRequest, links: Sequence[RowLink]) -> list[Callable[[Any], str]]:
    """Return the column for ``get_list_display``, or [] if the user may follow none of the links."""
    mine = [one for one in links if may(request, *one.rights)]

    @admin.display(description="more")
    def more(row: Any) -> str:
        found = [
            (address(request, one.page, **query), one.title) for one in mine if (query := one.query(row))
        ]
        return format_html_join(", ", '<a href="{}">{}</a>', found) or EMPTY

    return [more] if mine else []
