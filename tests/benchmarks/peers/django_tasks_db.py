"""django-tasks-db with four worker processes of one thread each: it has no threads. They poll each second (default)."""

from __future__ import annotations

import os
from typing import Any

from .adapter import handled
from .django_settings import migrate, set_up

PROCESSES = 4

set_up("django_tasks_db", "django_tasks_db.DatabaseBackend")

from django.tasks import task  # noqa: E402 - needs the settings


@task
def handle(payload: dict[str, Any]) -> None:
    handled(payload)


def prepare() -> None:
    migrate()


def send(payload: dict[str, Any]) -> None:
    handle.enqueue(payload)


def work() -> None:
    from django.core.management import call_command

    for _ in range(PROCESSES - 1):
        if os.fork() == 0:
            break
    call_command("db_worker", startup_delay=False, verbosity=0)
