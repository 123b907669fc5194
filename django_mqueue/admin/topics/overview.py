"""The overview: all topics and groups, their figures and their alarms.

It is the app's landing page (through a template tag), a page of its own, and a fragment that the browser reloads.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse

from ...exceptions import NotMigrated
from ..base.links import address
from ..base.views import QueueView, may
from . import ranking, status

logger = logging.getLogger("django_mqueue")

EVERY = 10
"""Seconds between two reloads of the fragment."""
FRAGMENT = "X-MQueue-Fragment"
"""The browser's script checks this header: a response without it is another page, for example a login page."""
QUERY_MAX = 1_000


PAGE_MAX = 1_000


def asked(request: HttpRequest) -> tuple[str, str]:
    """Return (name after which the list continues, text to find) from the query."""
    return request.GET.get("after", "")[:QUERY_MAX], request.GET.get("find", "").strip()[:QUERY_MAX]


def place_of(request: HttpRequest) -> tuple[int, str]:
    """Return (page number, order) from the query. The default is the first page, worst first."""
    page, sort = request.GET.get("p", ""), request.GET.get("sort", "")
    number = int(page) if page.isascii() and page.isdigit() and len(page) <= len(str(PAGE_MAX)) else 1
    return max(number, 1), sort if sort in (ranking.NAME, *ranking.SORTS) else ranking.WORST


def context_of(request: HttpRequest) -> dict[str, Any]:
    """Return the context of the overview's templates.

    If the database fails, the page says so: it must still open, because it is the entry to the other pages.
    """
    _, find = asked(request)
    page, sort = place_of(request)
    context: dict[str, Any] = {
        "request": request,
        "sort": sort,
        "find": find,
        "every": EVERY,
        "refresh_url": address(
            request,
            "overview",
            fragment=1,
            p=page if page > 1 else None,
            sort=None if sort == ranking.WORST else sort,
            find=find or None,
        ),
    }
    try:
        return {**context, "standing": status.overview(page, find, sort)}
    except NotMigrated as problem:
        return {**context, "standing": None, "problem": f"{str(problem)[:1].upper()}{str(problem)[1:]}."}
    except DatabaseError:
        logger.exception("the overview could not be read")
        return {**context, "standing": None}


class OverviewPage(QueueView):
    """The overview for sites that have their own landing page. ``?fragment=1`` returns only the part that changes."""

    route, url_name, rights = "overview", "overview", ("view_topic",)
    template_name = "admin/django_mqueue/overview_page.html"
    title = "Overview"

    def crumbs(self) -> list[tuple[str, str | None]]:
        *above, _, here = super().crumbs()
        return [*above, here]

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if "fragment" not in request.GET:
            return super().get(request, *args, **kwargs)
        context = context_of(request)
        if context["standing"] is None:
            text = context.get("problem", "The queue's database did not answer.")
            return HttpResponse(text, status=503, content_type="text/plain")
        self.template_name = "admin/django_mqueue/overview_fragment.html"
        response = self.render_to_response(context)
        response.headers[FRAGMENT] = "overview"
        return response


def may_see(request: HttpRequest) -> bool:
    return may(request, "view_topic")
