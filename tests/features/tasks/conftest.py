from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_mqueue.tasks.compat import TaskResult
from tests.support.processes import FAST
from tests.support.running import run

from . import jobs

BACKEND = "django_mqueue.tasks.MQueueBackend"


def tasks(**options: Any) -> dict[str, Any]:
    """Return the setting ``TASKS`` with these ``OPTIONS``, and two queues."""
    return {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": options}}


def work(*arguments: str, **options: Any) -> str:
    """Run all jobs of the queues in a worker, and return its output."""
    return run(*arguments, tasks=[], threads=1, **options)


def refreshed(result: TaskResult[Any]) -> TaskResult[Any]:
    result.refresh()
    return result


@pytest.fixture(autouse=True)
def backend() -> Iterator[None]:
    """Let the tasks of ``jobs`` use this queue, and forget what they have noted."""
    jobs.seen.clear()
    with override_settings(MQUEUE=FAST, TASKS=tasks()):
        yield
