"""The life of a job: its progress, a stop, atomic jobs, hooks, and groups."""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, transaction
from django.test import override_settings
from django.utils import timezone

from django_mqueue import StaleDelivery, Subscription
from django_mqueue.models import DeliveryState, Message
from django_mqueue.tasks import MQueueBackend, enqueue_group, job_options, progress_of, queues
from django_mqueue.tasks.compat import InvalidTask, task_backends
from django_mqueue.tasks.job_ids import GROUP, topic_of
from django_mqueue.tasks.running import limits_of, run_job
from django_mqueue.testing import assert_enqueued, drain
from tests.support.running import run
from tests.support.subscribers import poll_until, take_leases_away
from tests.support.threads import lost_after_its_commit
from tests.support.waiting import gather

from . import jobs
from .conftest import refreshed, tasks, work

pytestmark = pytest.mark.django_db(transaction=True)


def stop(id: str) -> bool:
    backend = task_backends["default"]
    assert isinstance(backend, MQueueBackend)
    return backend.stop(id)


@pytest.mark.parametrize("run_jobs", [drain, work])
def test_progress_is_seen_while_the_job_runs(run_jobs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_mqueue.tasks.context.INTERVAL", 30)
    result = jobs.reports.enqueue(3, 4)
    assert progress_of(result) is None
    run_jobs()
    first, second = jobs.seen
    assert (first.done, first.total, str(first)) == (3, 10, "3 of 10: step 1")
    assert second == first, "the second report came too early to be stored"
    assert refreshed(result).return_value is None


def test_progress_stays_if_another_job_of_the_same_statement_has_a_result() -> None:
    jobs.reports.enqueue(3)
    jobs.reports.enqueue(4)
    with Subscription(topic_of("default"), GROUP) as subscription:
        first, second = poll_until(subscription, 2)
        DeliveryState.objects.filter(message_offset=first.offset).update(result=b"progress")
        second.status.result = b"result"
        subscription.ack([first, second])
    stored = dict(DeliveryState.objects.values_list("message_offset", "result"))
    assert {offset: bytes(result or b"") for offset, result in stored.items()} == {
        first.offset: b"progress", second.offset: b"result",
    }  # fmt: skip


@pytest.mark.parametrize("value", [-1, True, "1", None, 10**400])
def test_bad_progress_is_an_error(value: Any) -> None:
    result = jobs.reports.enqueue(value)
    drain()
    assert refreshed(result).status == "FAILED"
    assert "done must be a number that is not negative" in result.errors[-1].traceback


def test_progress_is_committed_while_the_job_is_in_a_transaction() -> None:
    jobs.reports_in_a_transaction.enqueue()
    work()
    assert jobs.seen == [False, "1"]


def test_an_asynchronous_job_reports() -> None:
    jobs.reports_asynchronously.enqueue()
    work()
    assert jobs.seen == [False, "3"]


def test_a_running_job_is_asked_to_stop_and_is_not_tried_again() -> None:
    result = jobs.stops.enqueue()
    work()
    assert jobs.seen == [False, True]
    assert (refreshed(result).status, result.attempts) == ("FAILED", 1)
    assert "stopped after half" in result.errors[-1].traceback


def test_stop_cancels_a_job_that_waits_and_does_nothing_to_one_that_has_ended() -> None:
    result, other = jobs.add.enqueue(1, 2), jobs.add.enqueue(3, 4)
    assert stop(result.id)
    work()
    assert (jobs.seen, stop(result.id), stop(other.id)) == ([(3, 4)], False, False)


def test_stop_cancels_a_job_that_is_promoted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    result = jobs.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1, 2)
    promote = partial(Message.objects.update, topic="tasks.default", available_at=1)
    monkeypatch.setattr(MQueueBackend, "unschedule", lambda *args: promote() == 0)
    assert stop(result.id)
    work()
    assert (refreshed(result).status, jobs.seen) == ("FAILED", [])


def test_the_effects_of_an_atomic_job_happen_once() -> None:
    result = jobs.enqueues_once.enqueue()
    work()
    assert (refreshed(result).status, result.attempts) == ("SUCCESSFUL", 2)
    assert jobs.seen == [("hook", "attempt 2")]


def test_an_atomic_job_that_the_server_rolls_back_has_used_no_attempt() -> None:
    result = jobs.is_disconnected_once.enqueue()
    work()
    DeliveryState.objects.filter(acked=False).update(invisible_until=1)
    work()
    assert (refreshed(result).status, result.errors, jobs.seen) == ("SUCCESSFUL", [], ["run", "run"])


@pytest.mark.parametrize(
    ("failures", "noted"), [(0, ["hook"]), (1, ["hook", "hook"]), (2, ["hook", "failed"])]
)
@pytest.mark.parametrize("run_jobs", [drain, work])
def test_hooks(failures: int, noted: list[str], run_jobs: Any) -> None:
    result = jobs.has_hooks.enqueue(failures)
    run_jobs()
    hooks = [one for one in jobs.seen if isinstance(one, tuple)]
    assert sorted(hooks) == sorted((name, result.id) for name in noted)


def test_a_job_whose_lease_was_lost_enqueues_no_hook() -> None:
    jobs.has_hooks.enqueue(0)
    with Subscription("tasks.default", "tasks") as subscription:
        (delivery,) = gather(subscription.poll, 1, "the job")
        run_job(delivery)
        take_leases_away()
        with pytest.raises(StaleDelivery):
            delivery.ack()
    assert_enqueued(jobs.note, count=0)


def test_a_hook_is_enqueued_once_although_the_result_of_a_commit_was_lost() -> None:
    jobs.has_hooks.enqueue(0)
    with Subscription("tasks.default", "tasks") as subscription:
        (delivery,) = gather(subscription.poll, 1, "the job")
        run_job(delivery)
        with lost_after_its_commit(), pytest.raises(OperationalError):
            delivery.ack()
        assert delivery.ack()
    assert_enqueued(jobs.note, delivery.id)


@pytest.mark.parametrize("failures", [0, 2])
def test_a_hook_that_cannot_be_enqueued_does_not_hold_back_the_end_of_the_job(
    failures: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, other = jobs.has_hooks.enqueue(failures), jobs.add.enqueue(1, 2)
    monkeypatch.setattr(MQueueBackend, "new_id", lambda *args: 1 / 0)
    drain()
    assert (refreshed(result).status, refreshed(other).status) == (
        "FAILED" if failures else "SUCCESSFUL",
        "SUCCESSFUL",
    )
    assert "not enqueued: job " + result.id + ": ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("metadata", [{}, []])
def test_a_message_whose_metadata_cannot_be_read_does_not_stop_the_worker(metadata: Any) -> None:
    jobs.add.enqueue(1, 2)
    Message.objects.update(metadata=metadata)
    result = jobs.add.enqueue(3, 4)
    work()
    assert refreshed(result).status == "SUCCESSFUL"
    assert Message.objects.filter(topic="tasks.default_dlq").count() == 1


def test_a_job_whose_hook_this_worker_does_not_have_waits_for_another_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = jobs.has_hooks.enqueue(0)
    monkeypatch.setattr(jobs.has_hooks.func, "mqueue_job_options", {"on_success": "shop.tasks.new"})
    with override_settings(TASKS=tasks()):
        drain()
    assert (refreshed(result).status, result.attempts, jobs.seen) == ("READY", 0, [])


def test_a_job_that_is_replaced_enqueues_no_hook() -> None:
    jobs.index_and_tell.enqueue("tea")
    newest = jobs.index_and_tell.enqueue("tea")
    drain()
    assert jobs.seen.count("tea") == 1
    assert_enqueued(jobs.note, newest.id)
    assert_enqueued(jobs.note, count=1)


def test_an_unknown_hook_is_an_error_before_anything_is_enqueued() -> None:
    with pytest.raises(InvalidTask, match="cannot be imported"):
        jobs.hook_is_missing.enqueue()
    assert not Message.objects.exists()


@pytest.mark.parametrize("bad", [{"atomic": 1}, {"on_success": 3}])
def test_bad_options(bad: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(bad))):
        job_options(**bad)


def test_the_last_job_of_a_group_has_the_results_of_the_others() -> None:
    group, last = enqueue_group(
        [(jobs.add, [1, 2], {}), (jobs.fail, [], {}), (jobs.double, [5], {})], (jobs.adds_up, [100], {})
    )
    assert group.counts() == {"READY": 3}
    work()
    if not refreshed(last).is_finished:  # It was claimed before the others.
        DeliveryState.objects.filter(acked=False).update(invisible_until=1)
        work()
    assert refreshed(last).return_value == 113
    assert group.counts() == {"SUCCESSFUL": 2, "FAILED": 1}


def test_drain_moves_its_clock_to_the_end_of_a_group() -> None:
    for start in range(3):
        _, last = enqueue_group(
            [(jobs.add, [number, 0], {}) for number in range(5)], (jobs.adds_up, [start], {})
        )
        drain(until=timedelta(seconds=5))
        assert refreshed(last).return_value == start + 10


def test_the_last_job_waits_for_a_retry_of_another() -> None:
    with override_settings(TASKS=tasks(max_attempts=2, backoff=[600])):
        _, last = enqueue_group([(jobs.fail, [], {})], (jobs.adds_up, [1], {}))
        drain()
        assert refreshed(last).status == "READY"
        assert last.attempts == 0


def test_an_empty_group_starts_its_last_job() -> None:
    _, last = enqueue_group([], (jobs.adds_up, [1], {}))
    drain()
    assert refreshed(last).return_value == 1


def test_a_group_is_enqueued_whole_or_not_at_all() -> None:
    with transaction.atomic():
        enqueue_group([(jobs.add, [1, 2], {})], (jobs.adds_up, [1], {}))
        transaction.set_rollback(True)
    with pytest.raises(TypeError):
        enqueue_group([(jobs.add, [1, 2], {}), (jobs.add, [object()], {})], (jobs.adds_up, [1], {}))
    with (
        override_settings(TASKS={**tasks(), "other": tasks()["default"]}),
        pytest.raises(TypeError, match="must have the same MQueueBackend; the last has 'other'"),
    ):
        enqueue_group([(jobs.add, [1, 2], {})], (jobs.adds_up.using(backend="other"), [1], {}))
    with pytest.raises(ValueError, match="cannot be unique"):
        enqueue_group([(jobs.add, [1, 2], {})], (jobs.refresh_prices, ["a"], {}))
    assert not Message.objects.exists()


def test_the_loop_does_not_ask_for_the_limits_of_jobs_that_it_extends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would import the code of jobs that have not begun, and nothing else could run meanwhile."""
    threads = []

    def limits(message: Any) -> Any:
        threads.append(threading.current_thread())
        return limits_of(message)

    monkeypatch.setattr(queues, "VISIBLE_MS", 600)
    monkeypatch.setattr(queues, "limits_of", limits)
    jobs.waits_for_extension.enqueue()
    run(tasks=[])
    assert threads
    assert threading.current_thread() not in threads
