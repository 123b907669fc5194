"""Panels: additional parts of the pages of topics and groups. Other modules can add panels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from ..base.views import may


@dataclass(frozen=True)
class Panel:
    """An additional part of a page.

    ``context``: called with the request and the names (topic, or topic and group). It returns the context of
    ``template``. The names and ``request`` are added to it.
    """

    ident: str
    title: str
    template: str
    rights: tuple[str, ...]
    context: Callable[..., Mapping[str, Any]]


def panels(request: HttpRequest, wanted: Iterable[Panel], **names: str) -> list[tuple[Panel, SafeString]]:
    """Return the panels that the user may see, with their HTML."""
    every = {**names, "request": request}
    return [
        (panel, render_to_string(panel.template, {**every, **panel.context(request, **names)}, request))
        for panel in wanted
        if may(request, *panel.rights)
    ]
