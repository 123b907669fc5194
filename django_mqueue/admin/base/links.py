"""URLs of the queue's pages. Names of topics and groups are in the query, because they may hold any character."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from .display import printable

APP = "django_mqueue"


def address(request: HttpRequest, page: str, *args: object, **query: object) -> str:
    """Return the URL of a page on the request's admin site: ``address(request, "group", topic="orders")``.

    ``page``: the end of the URL's name, after ``admin:django_mqueue_``. Query parameters that are None are left out.
    """
    path = reverse(f"admin:{APP}_{page}", args=args, current_app=getattr(request, "current_app", None))
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def overview(request: HttpRequest) -> str:
    """Return the URL of the app's landing page."""
    return reverse("admin:app_list", args=(APP,), current_app=getattr(request, "current_app", None))


def link(url: str, text: str) -> SafeString:
    return format_html('<a href="{}">{}</a>', url, printable(text))
