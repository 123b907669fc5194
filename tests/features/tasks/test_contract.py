"""The contract of a backend for Django's Tasks: enqueue in the caller's transaction, run, and find the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone

from django_mqueue import redrive, scheduled
from django_mqueue.models import DeliveryState, Message
from django_mqueue.policy.names import ACTIONS_TOPIC
from django_mqueue.tasks import MQueueBackend
from django_mqueue.tasks.compat import (
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from django_mqueue.testing import drain, published
from tests.support.statements import counted

from . import jobs
from .conftest import BACKEND, refreshed, tasks, work

pytestmark = pytest.mark.django_db(transaction=True)

READY, RUNNING, FAILED, SUCCESSFUL = (
    TaskResultStatus.READY, TaskResultStatus.RUNNING, TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL,
)  # fmt: skip


def backend() -> MQueueBackend:
    found = task_backends["default"]
    assert isinstance(found, MQueueBackend)
    return found


@contextmanager
def signals() -> Iterator[list[tuple[str, TaskResultStatus, Any]]]:
    """Yield the list of the signals of Django's Tasks: name, status, and sender."""
    found: list[tuple[str, TaskResultStatus, Any]] = []

    def note(name: str) -> Any:
        return lambda sender, task_result, **kwargs: found.append((name, task_result.status, sender))

    receivers = {
        task_enqueued: note("enqueued"), task_started: note("started"), task_finished: note("finished"),
    }  # fmt: skip
    for signal, receiver in receivers.items():
        signal.connect(receiver, weak=False)
    try:
        yield found
    finally:
        for signal, receiver in receivers.items():
            signal.disconnect(receiver)


def test_the_backend_supports_everything() -> None:
    found = backend()
    assert found.supports_defer
    assert found.supports_async_task
    assert found.supports_get_result
    assert found.supports_priority


def test_the_life_of_a_job() -> None:
    result = jobs.add.enqueue(1, b=2)
    assert (result.status, result.args, result.kwargs, result.attempts) == (READY, [1], {"b": 2}, 0)
    assert refreshed(result).status == READY
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    work(name="mailer")
    assert refreshed(result).status == SUCCESSFUL
    assert (result.return_value, result.worker_ids, result.attempts, result.errors) == (3, ["mailer"], 1, [])
    enqueued, started, attempted, finished = (
        result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at,
    )  # fmt: skip
    assert enqueued is not None
    assert started is not None
    assert finished is not None
    assert enqueued <= started <= finished
    assert attempted == started
    again = jobs.add.get_result(result.id)
    assert (again.task, again.args, again.kwargs, again.backend) == (jobs.add, [1], {"b": 2}, "default")


def test_a_job_exists_exactly_when_its_transaction_commits() -> None:
    with transaction.atomic():
        result = jobs.add.enqueue(1, 2)
        assert jobs.add.get_result(result.id).status == READY
        transaction.set_rollback(True)
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()
    work()
    assert jobs.seen == []


def test_a_job_that_runs_is_running() -> None:
    result = jobs.echo.enqueue()
    during: list[TaskResult[Any]] = []

    def look(**kwargs: Any) -> None:
        during.append(jobs.echo.get_result(result.id))

    task_started.connect(look)
    try:
        work(name="w")
    finally:
        task_started.disconnect(look)
    (found,) = during
    assert (found.status, found.worker_ids, found.finished_at) == (RUNNING, ["w"], None)
    assert found.started_at is not None


def test_a_job_that_fails_has_an_error_with_its_traceback() -> None:
    result = jobs.fail.enqueue("out of paper")
    work(name="w")
    assert refreshed(result).status == FAILED
    (error,) = result.errors
    assert error.exception_class is ValueError
    assert error.traceback.startswith("Traceback (most recent call last)")
    assert error.traceback.strip().endswith("ValueError: out of paper")
    assert (jobs.seen, result.worker_ids) == (["out of paper"], ["w"])
    assert result.finished_at is not None
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value
    assert [letter.payload["args"] for letter in published("tasks.default_dlq")] == [["out of paper"]]


def test_a_job_that_is_redriven_runs_again_with_its_id() -> None:
    result = jobs.number_of_attempt.enqueue()
    with override_settings(TASKS=tasks(max_attempts=2, backoff=[0])):
        work()
        assert refreshed(result).status == FAILED
        assert redrive("tasks.default") == 1
        assert refreshed(result).status == READY
        work()
    # The attempts begin anew.
    assert (refreshed(result).status, jobs.seen) == (FAILED, [1, 2, 1, 2])


def test_async_jobs_and_async_calls() -> None:
    double: Any = jobs.double
    result = async_to_sync(double.aenqueue)(21)
    work()
    found = async_to_sync(double.aget_result)(result.id)
    assert (found.status, found.return_value) == (SUCCESSFUL, 42)
    async_to_sync(result.arefresh)()
    assert result.return_value == 42


def test_a_job_waits_for_its_time() -> None:
    due = timezone.now() + timedelta(hours=2)
    result = jobs.add.using(run_after=due).enqueue(1, 2)
    work()
    found = jobs.add.get_result(result.id)
    assert found.status == READY
    assert found.task.run_after is not None
    assert abs(found.task.run_after - due) < timedelta(milliseconds=1)
    soon = jobs.add.using(run_after=timezone.now() - timedelta(hours=2)).enqueue(3, 4)
    work()
    assert (jobs.seen, refreshed(soon).return_value) == ([(3, 4)], 7)


def test_a_job_waits_for_a_naive_time_if_the_project_has_no_time_zones() -> None:
    with override_settings(USE_TZ=False, TIME_ZONE="UTC"):
        result = jobs.add.using(run_after=timezone.now() + timedelta(hours=2)).enqueue(1, 2)
        work()
        assert jobs.add.get_result(result.id).status == READY
        assert jobs.seen == []


def test_a_naive_time_is_in_the_zone_of_the_project_not_of_the_request() -> None:
    with override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin"), timezone.override("America/New_York"):
        due = datetime(2090, 7, 1, 12, 0)
        result = jobs.add.using(run_after=due).enqueue(1, 2)
        assert jobs.add.get_result(result.id).task.run_after == due
        (message,) = scheduled("tasks.default")
        assert message.at == due.replace(tzinfo=ZoneInfo("Europe/Berlin"))


def test_all_times_are_naive_if_the_project_has_no_time_zones() -> None:
    with override_settings(USE_TZ=False, TIME_ZONE="UTC"):
        result = jobs.add.enqueue(1, 2)
        work()
        result.refresh()
        for at in (result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at):
            assert at is not None
            assert abs(timezone.now() - at) < timedelta(minutes=10)


def test_the_highest_priority_runs_first() -> None:
    for priority in (0, -100, 100, 5):
        jobs.echo.using(priority=priority).enqueue(priority)
    low = jobs.echo.using(priority=-1).enqueue(-1)
    work()
    assert [args[0] for args, _ in jobs.seen] == [100, 5, 0, -1, -100]
    assert jobs.echo.get_result(low.id).task.priority == -1


def test_arguments_are_stored_as_json() -> None:
    result = jobs.echo.enqueue((1, 2), ort="Zürich", empty=None)
    assert result.args == [[1, 2]]
    work()
    assert refreshed(result).return_value == [[[1, 2]], {"ort": "Zürich", "empty": None}]
    for wrong in ({1}, object(), timezone.now()):
        with pytest.raises(TypeError):
            jobs.echo.enqueue(wrong)
    assert len(published("tasks.default")) == 1


@pytest.mark.parametrize("value", [None, 0, "", [], False])
def test_a_falsy_value_is_returned_as_it_is(value: Any) -> None:
    result: TaskResult[Any] = jobs.echo.enqueue(value)
    work()
    found = refreshed(result).return_value[0][0]  # type: ignore[index]
    assert found == value
    assert type(found) is type(value)


def test_what_json_cannot_represent_is_no_return_value() -> None:
    result = jobs.return_a_set.enqueue()
    work()
    assert refreshed(result).status == FAILED
    assert result.errors[0].exception_class is TypeError


def test_a_return_value_has_a_limit() -> None:
    with override_settings(TASKS=tasks(max_result_bytes=100)):
        fits, too_long = jobs.return_many.enqueue(98), jobs.return_many.enqueue(99)
        work()
    assert refreshed(fits).return_value == "x" * 98
    assert refreshed(too_long).status == FAILED
    assert "over max_result_bytes (100)" in too_long.errors[0].traceback


def test_many_results_are_acknowledged_together() -> None:
    results = backend().enqueue_all([(jobs.echo, [n], {}) for n in range(450)])
    work()
    assert [refreshed(result).return_value for result in results] == [[[n], {}] for n in range(450)]


def test_enqueue_all_is_all_or_nothing_over_several_queues() -> None:
    with pytest.raises(TypeError):
        backend().enqueue_all([(jobs.add, [1, 2], {}), (jobs.add, [{1}, 2], {})])
    assert published() == []
    mail = jobs.add.using(queue_name="mail")
    results = backend().enqueue_all([(jobs.add, [1, 1], {}), (mail, [2, 2], {}), (jobs.add, [3, 3], {})])
    work()
    assert [refreshed(result).return_value for result in results] == [2, 4, 6]
    assert backend().enqueue_all([]) == []


def test_the_cost_of_enqueueing_and_of_a_result() -> None:
    with counted() as cost:
        result = jobs.add.enqueue(1, 2)
    assert (cost.count, cost.commits) == (1, 0), cost
    with counted() as cost, transaction.atomic():
        jobs.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1, 2)
    assert cost.count == 1, cost
    with counted() as cost:
        backend().enqueue_all([(jobs.add, [n, n], {}) for n in range(1000)])
    assert cost.count == 2, cost
    work()
    with counted() as cost:
        assert jobs.add.get_result(result.id).return_value == 3
    assert cost.count == 1, cost
    failed = jobs.fail.enqueue()
    work()
    with counted() as cost:
        assert jobs.fail.get_result(failed.id).status == FAILED
    assert cost.count == 2, cost


def test_signals_have_the_backend_as_sender() -> None:
    with signals() as found:
        jobs.add.enqueue(1, 2)
        work()
    sender = type(task_backends["default"])
    assert found == [
        ("enqueued", READY, sender), ("started", RUNNING, sender), ("finished", SUCCESSFUL, sender),
    ]  # fmt: skip


def test_a_failed_job_is_reported_once_when_no_attempt_is_left() -> None:
    with signals() as found, override_settings(TASKS=tasks(max_attempts=3, backoff=[0])):
        jobs.fail.enqueue()
        work()
    assert [(name, status) for name, status, _ in found] == [
        ("enqueued", READY), *[("started", RUNNING)] * 3, ("finished", FAILED),
    ]  # fmt: skip


def test_a_receiver_that_fails_does_not_fail_the_job() -> None:
    def receiver(**kwargs: Any) -> None:
        raise RuntimeError("receiver")

    task_started.connect(receiver)
    task_finished.connect(receiver)
    try:
        result = jobs.add.enqueue(1, 2)
        work()
    finally:
        task_started.disconnect(receiver)
        task_finished.disconnect(receiver)
    assert refreshed(result).return_value == 3


@pytest.mark.parametrize(
    "id",
    ["", "x", "default", "default.0.16.x", "default.0.0.x", "default.101.16.x", "default.00.16.x", "..."],
)
def test_an_unknown_id_has_no_result(id: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(id)


def test_a_result_belongs_to_the_backend_that_enqueued_it() -> None:
    both = {**tasks(), "other": tasks()["default"]}
    with override_settings(TASKS=both):
        result = jobs.add.using(backend="other").enqueue(1, 2)
        assert task_backends["other"].get_result(result.id).backend == "other"
        with pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(result.id)
        work()
        assert refreshed(result).return_value == 3


def test_an_unknown_task_waits_for_a_worker_that_knows_it(caplog: pytest.LogCaptureFixture) -> None:
    result = jobs.add.enqueue(1, 2)
    package = jobs.__name__.rpartition(".")[0]
    for kind in (
        "shop.no_such_task",
        f"{package}.jobs.not_a_task",
        f"{package}.jobs.gone",
        f"{package}.broken.add",
    ):
        Message.objects.update(metadata=_with_kind(kind))
        DeliveryState.objects.update(invisible_until=1)
        work()
        assert f"{kind!r}" in caplog.text
    assert DeliveryState.objects.get().failure_count == 0
    Message.objects.update(metadata=_with_kind(jobs.add.module_path))
    DeliveryState.objects.update(invisible_until=1)
    work()
    assert (refreshed(result).status, result.attempts) == (SUCCESSFUL, 1)


def _with_kind(kind: str) -> Any:
    return {**Message.objects.exclude(topic=ACTIONS_TOPIC).get().metadata, "kind": kind}


def test_a_message_that_is_no_job_is_dead_lettered() -> None:
    from django_mqueue import publish

    publish("tasks.default", {"args": []}, kind=jobs.add.module_path)
    work()
    (letter,) = published("tasks.default_dlq")
    assert "no backend ''" in letter.last_error or "no job" in letter.last_error


def test_invalid_tasks_are_errors() -> None:
    with pytest.raises(InvalidTask, match="Queue 'nowhere' is not valid"):
        jobs.add.using(queue_name="nowhere")
    with pytest.raises(InvalidTask, match="priority must be a whole number"):
        jobs.add.using(priority=101)


def test_jobs_run_in_a_testcase_by_drain() -> None:
    result = jobs.add.enqueue(1, 2)
    assert [message.id for message in drain("tasks.default")] == [result.id]
    assert refreshed(result).return_value == 3


def test_the_migration_adds_the_column_at_once() -> None:
    """INSTANT fails if the server would have to copy the table."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE queue_delivery_state ADD COLUMN probe longblob NULL, ALGORITHM=INSTANT")
        cursor.execute("ALTER TABLE queue_delivery_state DROP COLUMN probe")


def test_a_backend_is_named_by_its_import_path() -> None:
    assert f"{type(task_backends['default']).__module__.rpartition('.')[0]}.MQueueBackend" == BACKEND
