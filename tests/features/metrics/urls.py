"""URLs of the metrics: open, and with a token as docs/how-to/monitor-with-prometheus.md shows it."""

from __future__ import annotations

import secrets
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_mqueue import metrics


def with_token(request: HttpRequest, **kwargs: Any) -> HttpResponse:
    given = request.headers.get("Authorization", "")
    if not secrets.compare_digest(given.encode(), b"Bearer s3cret"):
        raise PermissionDenied
    return metrics.view(request, **kwargs)


urlpatterns = [path("metrics", metrics.view), path("secret-metrics", with_token)]
