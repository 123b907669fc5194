"""Django's app configuration. It registers the checks, and creates the gate rows after each ``migrate``."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _


class MQueueConfig(AppConfig):
    name = "django_mqueue"
    label = "django_mqueue"
    verbose_name = _("Message queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401

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
