"""Cancel jobs that wait."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from django_mqueue import scheduled
from django_mqueue.tasks import MQueueBackend
from django_mqueue.tasks.compat import TaskResultDoesNotExist, task_backends
from django_mqueue.testing import drain

from . import jobs
from .conftest import tasks

pytestmark = pytest.mark.django_db(transaction=True)


def cancel(id: str) -> bool:
    backend = task_backends["default"]
    assert isinstance(backend, MQueueBackend)
    return backend.cancel(id)


def test_a_job_that_waits_fails_and_does_not_run() -> None:
    first, second = jobs.add.enqueue(1, 2), jobs.add.enqueue(3, 4)
    assert cancel(first.id)
    drain()
    assert jobs.seen == [(3, 4)]
    first.refresh()
    assert first.status == "FAILED"
    assert "removed" in first.errors[-1].traceback
    assert (first.started_at, first.last_attempted_at) == (None, None)
    assert not cancel(first.id)
    assert not cancel(second.id)


def test_a_scheduled_job_is_deleted() -> None:
    result = jobs.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1, 2)
    assert cancel(result.id)
    with pytest.raises(TaskResultDoesNotExist):
        cancel(result.id)


@pytest.mark.parametrize("wait", [600, 7200])
def test_a_job_that_waits_for_a_retry(wait: float) -> None:
    """A retry after more than an hour waits among the scheduled messages."""
    with override_settings(TASKS=tasks(max_attempts=2, backoff=[wait])):
        result = jobs.fail.enqueue("no")
        drain()
        assert cancel(result.id)
    assert list(scheduled("tasks.default")) == []
    drain()
    assert jobs.seen == ["no"]


def test_a_job_that_runs_goes_on() -> None:
    result = jobs.cancels_itself.enqueue()
    drain()
    result.refresh()
    assert result.return_value is False


def test_a_cancel_that_is_rolled_back() -> None:
    result = jobs.add.enqueue(1, 2)
    with transaction.atomic():
        assert cancel(result.id)
        transaction.set_rollback(True)
    drain()
    assert jobs.seen == [(1, 2)]


@pytest.mark.parametrize("id", ["x", "default.0.64.x", None])
def test_an_unknown_job(id: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        cancel(id)
