"""Attempts of a job: retries, time limits, expiry, and workers that die."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone

from django_mqueue import ExponentialBackoff
from django_mqueue.models import DeliveryState, Message
from django_mqueue.tasks import JobExpired, MQueueBackend, enqueue_group, job_options
from django_mqueue.tasks.compat import TaskResultStatus, task_backends
from django_mqueue.testing import assert_enqueued, published
from tests.support.fixtures import with_settings
from tests.support.processes import Workers, wait_until
from tests.support.subscribers import let_worker_die

from . import jobs
from .conftest import refreshed, tasks, work

pytestmark = pytest.mark.django_db(transaction=True)

READY, FAILED, SUCCESSFUL = TaskResultStatus.READY, TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL


def test_without_options_a_job_has_one_attempt() -> None:
    result = jobs.fail.enqueue()
    work()
    assert (refreshed(result).status, result.attempts, len(jobs.seen)) == (FAILED, 1, 1)


def test_the_backend_sets_the_attempts_of_all_its_jobs() -> None:
    with override_settings(TASKS=tasks(max_attempts=3, backoff=[0])):
        result = jobs.number_of_attempt.enqueue()
        work(name="w")
    assert (refreshed(result).status, result.return_value) == (SUCCESSFUL, 3)
    assert (jobs.seen, result.attempts, result.worker_ids) == ([1, 2, 3], 3, ["w"] * 3)
    assert [error.exception_class for error in result.errors] == [OSError, OSError]
    assert result.started_at is not None
    assert result.last_attempted_at is not None
    assert result.started_at < result.last_attempted_at


def test_a_task_sets_its_own_attempts() -> None:
    retried, not_retried = jobs.patient.enqueue("os"), jobs.patient.enqueue("value")
    work()
    assert sorted(jobs.seen) == ["os", "os", "os", "value"]
    assert (refreshed(retried).attempts, refreshed(not_retried).attempts) == (3, 1)
    assert {retried.status, not_retried.status} == {FAILED}
    assert {letter.failure_count for letter in published("tasks.default_dlq")} == {3, 1}


def test_between_attempts_a_job_is_ready() -> None:
    with override_settings(TASKS=tasks(max_attempts=2, backoff=ExponentialBackoff(first=600))):
        result = jobs.fail.enqueue()
        work()
        assert (refreshed(result).status, result.attempts, len(result.errors)) == (READY, 1, 1)
        DeliveryState.objects.update(invisible_until=1)
        work()
    assert (refreshed(result).status, result.attempts) == (FAILED, 2)


def test_a_retry_in_two_hours_keeps_the_id_of_the_job() -> None:
    """Such a retry waits among the scheduled messages, and returns as another message."""
    with override_settings(TASKS=tasks(max_attempts=2, backoff=[7200])):
        result = jobs.number_of_attempt.enqueue()
        work()
        assert (refreshed(result).status, result.attempts) == (READY, 1)
        promote()
    assert jobs.seen == [1, 2]
    assert (refreshed(result).status, result.attempts, len(result.errors)) == (FAILED, 2, 2)


parked = with_settings(autouse=False, TASKS=tasks(max_attempts=2, backoff=[7200]))
"""Jobs have two attempts, and retries wait among the scheduled messages."""


def delete_log() -> None:
    """Delete the messages in the log, as garbage collection does after ``RETENTION``."""
    Message.objects.filter(topic="tasks.default").delete()
    DeliveryState.objects.all().delete()


def promote() -> None:
    Message.objects.filter(topic="tasks.default_scheduled").update(available_at=1)
    work()


@pytest.mark.usefixtures("parked")
def test_a_job_has_not_ended_while_its_retry_waits_longer_than_the_log_keeps_it() -> None:
    backend = task_backends["default"]
    assert isinstance(backend, MQueueBackend)
    result, cancelled = jobs.number_of_attempt.enqueue(), jobs.number_of_attempt.enqueue()
    work()
    delete_log()
    assert (refreshed(result).status, result.attempts, len(result.errors)) == (READY, 1, 1)
    assert result.task.run_after is None
    assert backend.cancel(cancelled.id)
    promote()
    assert jobs.seen == [1, 1, 2]
    assert (refreshed(result).status, result.attempts, len(result.errors)) == (FAILED, 2, 2)


@pytest.mark.usefixtures("parked")
def test_a_group_waits_for_a_retry_that_waits_longer_than_the_log_keeps_it() -> None:
    _, last = enqueue_group([(jobs.fail, [], {})], (jobs.adds_up, [1], {}))
    work()
    Message.objects.filter(topic="tasks.default").exclude(message_id=last.id).delete()
    DeliveryState.objects.filter(acked=False).update(invisible_until=1)
    work()
    assert refreshed(last).status == READY


@pytest.mark.usefixtures("parked")
def test_a_job_is_unique_while_its_retry_waits_longer_than_the_log_keeps_it() -> None:
    first = jobs.fails_alone.enqueue()
    work()
    delete_log()
    assert jobs.fails_alone.enqueue().id == first.id
    assert not Message.objects.filter(topic="tasks.default").exists()
    promote()
    assert jobs.fails_alone.enqueue().id != first.id


def test_a_task_may_ask_for_a_retry_which_counts() -> None:
    with override_settings(TASKS=tasks(max_attempts=3)):
        result = jobs.asks_again.enqueue()
        work()
    assert (refreshed(result).status, len(jobs.seen)) == (FAILED, 3)


def test_a_job_over_its_time_limit_fails() -> None:
    result = jobs.sleeps.enqueue()
    work()
    assert (refreshed(result).status, jobs.seen) == (FAILED, ["asleep"])
    assert result.errors[0].exception_class_path == "django_mqueue.exceptions.TimeLimitExceeded"


def test_a_job_that_waited_too_long_does_not_run() -> None:
    late, in_time = jobs.fresh.enqueue(), jobs.fresh.enqueue()
    first = Message.objects.get(message_id=late.id)
    Message.objects.filter(offset=first.offset).update(published_at=first.published_at - 3_605_000)
    work()
    assert (refreshed(in_time).return_value, refreshed(late).status) == ("in time", FAILED)
    assert late.errors[0].exception_class is JobExpired


def test_a_scheduled_job_that_waited_too_long_for_a_worker_does_not_run() -> None:
    """It was due two hours ago. The worker moves it into the log only now."""
    late = jobs.fresh.using(run_after=timezone.now() + timedelta(hours=1)).enqueue()
    row = Message.objects.get(message_id=late.id)
    Message.objects.filter(offset=row.offset).update(
        created_at=row.created_at - 3 * 3_600_000, available_at=row.available_at - 3 * 3_600_000
    )
    work()
    assert refreshed(late).status == FAILED
    assert late.errors[0].exception_class is JobExpired


def test_a_job_that_kills_its_workers_fails_and_does_not_loop(tmp_path: Path) -> None:
    """The first death may be the fault of another job. After the second one the job ran alone, and is to blame."""
    note = tmp_path / "starts"
    poison, other = jobs.kills_its_worker.enqueue(str(note)), jobs.add.enqueue(1, 2)
    program, setting = ("django", "runconsumer"), json.dumps(tasks())
    codes = []
    with Workers() as workers:
        while refreshed(poison).status != FAILED:
            worker = workers.run(program, "--tasks", "--drain", "--threads", "1", TEST_TASKS=setting)
            codes.append(worker.wait())
            let_worker_die(worker)
            assert len(codes) < 6
    assert codes == [9, 9, 0]
    assert note.read_text() == "started\n" * 2
    assert refreshed(other).return_value == 3
    assert "the worker died" in poison.errors[-1].traceback
    assert poison.attempts >= 2
    assert_enqueued(jobs.note_failure, poison.id)
    assert [letter.failure_count for letter in published("tasks.default_dlq")] == [1]
    assert DeliveryState.objects.get(failure_count__gt=0).failure_count == 1


def test_a_job_of_a_killed_worker_runs_again_and_is_counted(tmp_path: Path) -> None:
    note = tmp_path / "starts"
    result, queued = jobs.hangs_once.enqueue(str(note)), jobs.add.enqueue(1, 2)
    program, setting = ("django", "runconsumer"), json.dumps(tasks())
    with Workers() as workers:
        first = workers.run(program, "--tasks", "--threads", "1", "--name", "first", TEST_TASKS=setting)
        wait_until(note.exists, "the job has started")
        first.kill()
        assert refreshed(result).status == TaskResultStatus.RUNNING, "until another worker has its partition"
        let_worker_die(first)
        second = workers.run(program, "--tasks", "--drain", "--name", "second", TEST_TASKS=setting)
        assert second.wait() == 0
    assert (refreshed(result).return_value, result.attempts, result.worker_ids) == ("done", 2, ["", "second"])
    assert (refreshed(queued).return_value, queued.attempts) == (3, 1)


def test_options_are_set_above_and_below_the_decorator() -> None:
    backend = MQueueBackend("default", tasks(max_attempts=7)["default"])
    assert backend.options_of(jobs.patient.func).max_attempts == 3
    assert backend.options_of(jobs.fresh.func).expires == 3600
    assert backend.options_of(jobs.fresh.func).max_attempts == 7


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"max_attempts": 0}, ValueError, "max_attempts must be at least 1 and at most 1000, not 0"),
        ({"max_attempts": "3"}, TypeError, "max_attempts must be an int"),
        ({"backoff": 3}, TypeError, "retry must be callable"),
        ({"retry_on": ["OSError"]}, TypeError, "takes types of exceptions"),
        ({"timeout": 0}, ValueError, "timeout"),
        ({"expires": "soon"}, TypeError, "expires"),
    ],
)
def test_impossible_options_are_errors(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        job_options(**options)
    with pytest.raises(Exception, match=text) as raised:
        MQueueBackend("default", tasks(**options)["default"])
    assert "TASKS['default']['OPTIONS']" in str(raised.value)


def test_an_unknown_option_names_the_known_ones() -> None:
    with pytest.raises(Exception, match=r"unknown option 'retries'; the options are: .*max_attempts"):
        MQueueBackend("default", tasks(retries=3)["default"])
