"""dj-queue with one worker process of four threads, polling every 0.1 s (its default)."""

from __future__ import annotations

from typing import Any

from .adapter import handled
from .django_settings import migrate, set_up

set_up("dj_queue", "dj_queue.backend.DjQueueBackend", {"workers": [{"queues": ["*"], "threads": 4}]})

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

    call_command("dj_queue", only_work=True)
