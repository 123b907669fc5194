"""Django's app configuration: it imports declared topics and checks, and creates gate rows after ``migrate``."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

import django
from django.apps import AppConfig
from django.conf import settings
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class MQueueConfig(AppConfig):
    name = "django_mqueue"
    label = "django_mqueue"
    verbose_name = _("Message queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401

        # In every process: ``mqueue gc`` and whatever polls delete messages by the retention of the declared topics.
        autodiscover_modules("topics")
        if getattr(settings, "TASKS", None):
            # Registers Django's check of ``TASKS``, also if no task is imported.
            with suppress(ModuleNotFoundError):
                import_module("django.tasks.checks" if django.VERSION >= (6, 0) else "django_tasks.checks")
        post_migrate.connect(_ensure_gates, sender=self, dispatch_uid="django_mqueue.gates")


def _ensure_gates(*, using: str, **kwargs: Any) -> None:
    """Create missing gate rows: each publish needs them, and a flush (of a ``TransactionTestCase``) deletes them."""
    from django.db import connections, router

    from .models import Offset
    from .store.gates import ensure

    connection = connections[using]
    if connection.vendor != "mysql" or not router.allow_migrate_model(using, Offset):
        return
    with connection.cursor() as cursor:
        if Offset._meta.db_table in connection.introspection.table_names(cursor):
            ensure(cursor)
