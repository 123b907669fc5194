from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from tests.support.processes import FAST

from . import jobs

BACKEND = "django_mqueue.tasks.MQueueBackend"


def tasks(**options: Any) -> dict[str, Any]:
    """Return the setting ``TASKS`` with these ``OPTIONS``, and two queues."""
    return {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": options}}


@pytest.fixture(autouse=True)
def backend() -> Iterator[None]:
    """Let the tasks of ``jobs`` use this queue, and forget what they have noted."""
    jobs.seen.clear()
    with override_settings(MQUEUE=FAST, TASKS=tasks()):
        yield
