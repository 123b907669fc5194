"""Parts of the pages of topics and groups, which whoever has something to show there adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from .views import may


@dataclass(frozen=True)
class Panel:
    """A part of a page. ``context`` is called with the request and the names (topic, or topic and group), and gives
    what ``template`` needs beside these and ``request``."""

    ident: str
    title: str
    template: str
    rights: tuple[str, ...]
    context: Callable[..., Mapping[str, Any]]


def panels(request: HttpRequest, wanted: Iterable[Panel], **names: str) -> list[tuple[Panel, SafeString]]:
    """The panels that this user may see, with their HTML."""
    every = {**names, "request": request}
    return [
        (panel, render_to_string(panel.template, {**every, **panel.context(request, **names)}, request))
        for panel in wanted
        if may(request, *panel.rights)
    ]
