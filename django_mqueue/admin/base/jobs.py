"""The queues of jobs and the recurring jobs of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from ...tasks import MQueueBackend, RecurringJob


def backends() -> list[MQueueBackend]:
    """Return the backends for jobs.

    Without ``TASKS`` it does not import ``tasks``, because on Django 5.2 that needs another package.
    """
    if not getattr(settings, "TASKS", None):
        return []
    try:
        from ...tasks import queues
    except ImproperlyConfigured:
        return []
    return queues.backends()


def recurring_jobs() -> list[RecurringJob]:
    """Return the recurring jobs of all backends."""
    if not (found := backends()):
        return []
    from ...tasks.recurring import jobs_of

    return [job for backend in found for job in jobs_of(backend)]
