"""django-tasks-db with four worker processes of one thread each: it has no threads. They poll each second (default)."""

from __future__ import annotations

import os

from .django_settings import set_up

PROCESSES = 4

set_up("django_tasks_db", "django_tasks_db.DatabaseBackend")

from .django_jobs import copy_model, look_up, prepare, send, send_many  # noqa: E402 - needs the settings

__all__ = ["fill", "finished", "look_up", "prepare", "send", "send_many", "work"]


def finished(count: int) -> list[str]:
    from django_tasks_db.models import DBTaskResult

    return [
        str(id)
        for id in DBTaskResult.objects.filter(status="SUCCESSFUL").values_list("id", flat=True)[:count]
    ]


def fill(count: int) -> None:
    from django_tasks_db.models import DBTaskResult

    copy_model(DBTaskResult, count)


def work() -> None:
    from django.core.management import call_command

    for _ in range(PROCESSES - 1):
        if os.fork() == 0:
            break
    call_command("db_worker", startup_delay=False, verbosity=0)
