"""Django's Tasks: ``django.tasks`` of Django 6, or its backport, the package ``django-tasks``, on Django 5.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import django
from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING or django.VERSION < (6, 0):
    try:
        from django_tasks import exceptions, task, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
        from django_tasks.exceptions import TaskException, TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
        from django_tasks.utils import normalize_json
    except ImportError as error:
        raise ImproperlyConfigured(
            "django_mqueue.tasks needs Django 6, or on Django 5.2 the package django-tasks: install"
            " django-mqueue[tasks]"
        ) from error
    # Up to version 0.12 the name ends in "Error".
    InvalidTask: type[TaskException] = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
else:
    from django.tasks import task, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

__all__ = [
    "BaseTaskBackend", "InvalidTask", "Task", "TaskContext", "TaskError", "TaskResult", "TaskResultDoesNotExist",
    "TaskResultStatus", "normalize_json", "task", "task_backends", "task_enqueued", "task_finished", "task_started",
]  # fmt: skip
