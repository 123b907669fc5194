"""The view of the database's metrics."""

from __future__ import annotations

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from .database import DatabaseCollector

_collectors: dict[str | None, DatabaseCollector] = {}


@never_cache
@require_safe
def view(request: HttpRequest, *, using: str | None = None) -> HttpResponse:
    """Return the metrics of the database in the text format of Prometheus. ``using``: the alias of the database.

    The view asks for no permission: the project restricts who may open its URL.
    """
    registry = CollectorRegistry()
    registry.register(_collectors.setdefault(using, DatabaseCollector(using)))
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


# With ATOMIC_REQUESTS, Django would need the database before it calls the view.
for _alias in settings.DATABASES:
    view = transaction.non_atomic_requests(using=_alias)(view)
