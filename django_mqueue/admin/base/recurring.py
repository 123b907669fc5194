"""The recurring jobs of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from ...tasks import RecurringJob


def recurring_jobs() -> list[RecurringJob]:
    """Return the recurring jobs. Without ``TASKS`` there are none: on Django 5.2, ``tasks`` needs one more package."""
    if not getattr(settings, "TASKS", None):
        return []
    try:
        from ... import tasks
    except ImproperlyConfigured:
        return []
    return tasks.recurring_jobs()
