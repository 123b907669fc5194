"""Take steps with many items, each in a transaction of its own."""

from __future__ import annotations

import logging
from typing import Any

from django.db import DatabaseError

from ..exceptions import MQueueError
from ..store.connection.errors import is_retriable
from .models import WorkItem

logger = logging.getLogger("django_mqueue")


def step_problem(item: WorkItem, verb: str, arguments: dict[str, Any]) -> str | None:
    """Take a step. Return why it failed, and nothing was changed; None if it did not fail.

    An error of the project's own ``work`` is also logged.
    """
    try:
        getattr(item, verb)(**arguments)
    except (MQueueError, ValueError) as problem:
        return str(problem)
    except DatabaseError as problem:
        if not is_retriable(problem):
            raise
        return f"item {item.pk} is locked by another step: try again"
    except Exception as problem:
        logger.exception("step of a work item failed: %s %s", verb, item.pk)
        return f"item {item.pk}: {type(problem).__name__}: {problem}"
    return None
