"""Django's settings for the peers that are apps: one database, one app and its ``TASKS`` backend."""

from __future__ import annotations

import os
from typing import Any

import django
from django.conf import settings


def set_up(app: str, backend: str, options: dict[str, Any] | None = None) -> None:
    """Configure Django with ``app`` and the backend, at READ COMMITTED as Django does by default."""
    settings.configure(
        INSTALLED_APPS=[app],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.mysql",
                "NAME": os.environ["MQUEUE_BENCH_DATABASE"],
                "USER": "root",
                "OPTIONS": {"unix_socket": os.environ["MQUEUE_BENCH_SOCKET"], "charset": "utf8mb4"},
            }
        },
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        SECRET_KEY="only for benchmarks",
        TASKS={"default": {"BACKEND": backend, "QUEUES": ["default"], "OPTIONS": options or {}}},
        USE_TZ=True,
    )
    django.setup()


def migrate() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
