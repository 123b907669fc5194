"""dj-queue with one worker process of four threads, polling every 0.1 s (its default)."""

from __future__ import annotations

from .django_settings import set_up

set_up("dj_queue", "dj_queue.backend.DjQueueBackend", {"workers": [{"queues": ["*"], "threads": 4}]})

from .django_jobs import copy_model, look_up, prepare, send, send_many  # noqa: E402 - needs the settings

__all__ = ["fill", "finished", "look_up", "prepare", "send", "send_many", "work"]


def finished(count: int) -> list[str]:
    from dj_queue.models import Job

    return [str(id) for id in Job.objects.exclude(finished_at=None).values_list("id", flat=True)[:count]]


def fill(count: int) -> None:
    from dj_queue.models import Job

    copy_model(Job, count)


def work() -> None:
    from django.core.management import call_command

    call_command("dj_queue", only_work=True)
