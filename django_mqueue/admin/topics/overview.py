"""The overview: all topics and groups, their figures and their alarms.

It is the app's landing page (through a template tag), a page of its own, and a fragment that the browser reloads.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...exceptions import NotMigrated
from ..base.urls import page_url
from ..base.views import FRAGMENT, QueueView
from . import status

logger = logging.getLogger("django_mqueue")

EVERY = 10
"""Seconds between two reloads of the fragment."""
NAME_MAX = 1_000
"""Maximum characters of the names in a query."""


def context_of(request: HttpRequest) -> dict[str, Any]:
    """Return the context of the overview's templates.

    The query has the page number ``p``, the order ``sort`` and a part of the topics' names, ``find``. If the database
    fails, the page says so: it must still open, because it is the entry to the other pages.
    """
    number, sort = request.GET.get("p", ""), request.GET.get("sort", "")
    find = request.GET.get("find", "").strip()[:NAME_MAX]
    page = int(number) if number.isascii() and number.isdigit() and len(number) < 5 else 1
    sort = sort if sort in (status.NAME, *status.SORTS) else status.WORST
    query = {
        "p": page if page > 1 else None,
        "sort": None if sort == status.WORST else sort,
        "find": find or None,
    }
    context: dict[str, Any] = {
        "request": request,
        "sort": sort,
        "find": find,
        "refresh_seconds": EVERY,
        "refresh_url": page_url(request, "overview", fragment=1, **query),
    }
    try:
        return {**context, "overview": status.overview(max(page, 1), find, sort)}
    except NotMigrated as problem:
        return {**context, "overview": None, "problem": f"{capfirst(str(problem))}."}
    except DatabaseError:
        logger.exception("the overview could not be read")
        return {**context, "overview": None}


class OverviewPage(QueueView):
    """The overview for sites that have their own landing page. ``?fragment=1`` returns only the part that changes."""

    route, url_name = "overview", "overview"
    template_name = "admin/django_mqueue/overview_page.html"
    title = gettext_lazy("Overview")
    is_top_level = True

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if "fragment" not in request.GET:
            return super().get(request, *args, **kwargs)
        context = context_of(request)
        if context["overview"] is None:
            text = context.get("problem", _("The queue's database did not answer."))
            return HttpResponse(text, status=503, content_type="text/plain")
        self.template_name = "admin/django_mqueue/overview_fragment.html"
        response = self.render_to_response(context)
        response.headers[FRAGMENT] = "overview"
        return response
