"""Unique jobs: of the jobs of one key, one waits or runs at a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone

from django_mqueue import reset, subscribe
from django_mqueue.models import DeliveryState, Message
from django_mqueue.tasks import JobExists, Unique, job_options
from django_mqueue.tasks.compat import TaskResultDoesNotExist, task, task_backends, task_enqueued
from django_mqueue.tasks.job_ids import GROUP, topic_of
from django_mqueue.testing import drain
from tests.support.statements import counted
from tests.support.transactions import Background, HeldTransaction

from . import jobs
from .conftest import tasks
from .test_contract import backend

pytestmark = pytest.mark.django_db(transaction=True)


@task
def decorated_again() -> None: ...


def test_options_above_the_decorator_count_in_the_thread_that_imports_the_module() -> None:
    """``task`` lets the backend of this thread check the function, before it has options."""
    found = job_options(unique=Unique())(task(decorated_again.func))
    assert found.enqueue().id == found.enqueue().id


def test_a_second_job_is_the_first_one_until_it_has_ended() -> None:
    first, second = jobs.refresh_prices.enqueue("tea"), jobs.refresh_prices.enqueue("tea")
    assert second.id == first.id
    other = jobs.refresh_prices.enqueue("coffee")
    assert other.id != first.id
    drain()
    assert sorted(jobs.seen) == ["coffee", "tea"]
    third = jobs.refresh_prices.enqueue("tea")
    assert third.id not in (first.id, other.id)
    drain()
    second.refresh()
    assert second.return_value == "tea"
    assert jobs.seen.count("tea") == 2


def test_it_is_unique_while_it_runs() -> None:
    """The job enqueues itself."""
    result = jobs.enqueues_itself.enqueue()
    drain()
    result.refresh()
    assert result.return_value == result.id
    assert jobs.enqueues_itself.enqueue().id != result.id


def test_it_is_unique_while_it_waits_for_a_retry_and_free_after_it_has_failed() -> None:
    with override_settings(TASKS=tasks(max_attempts=2, backoff=[600])):
        first = jobs.fails_alone.enqueue()
        drain()
        assert jobs.fails_alone.enqueue().id == first.id
        DeliveryState.objects.update(invisible_until=0)
        drain()
        first.refresh()
        assert first.status == "FAILED"
        assert jobs.fails_alone.enqueue().id != first.id


def test_a_scheduled_job_counts() -> None:
    later = timezone.now() + timedelta(hours=1)
    first = jobs.refresh_prices.using(run_after=later).enqueue("tea")
    second = jobs.refresh_prices.enqueue("tea")
    assert second.id == first.id
    assert second.task.run_after is not None


def test_a_queue_whose_name_contains_the_separator_of_ids() -> None:
    queue = {"default": {**tasks()["default"], "QUEUES": ["default", "a#b"]}}
    with override_settings(TASKS=queue):
        one, other = jobs.greet_daily.using(queue_name="a#b"), jobs.fails_alone.using(queue_name="a#b")
        plain = jobs.add.using(queue_name="a#b")
        results: list[Any] = [one.enqueue(), other.enqueue(), *(plain.enqueue(n, 1) for n in range(20))]
        assert [one.enqueue().id, other.enqueue().id] == [results[0].id, results[1].id]
    assert len({result.id for result in results}) == 22
    assert Message.objects.values("partition_key").distinct().count() > 2


def test_only_the_job_that_is_enqueued_sends_the_signal() -> None:
    sent: list[str] = []

    def note(task_result: Any, **_: Any) -> None:
        sent.append(task_result.id)

    task_enqueued.connect(note)
    first = jobs.refresh_prices.enqueue("tea")
    jobs.refresh_prices.enqueue("tea")
    task_enqueued.disconnect(note)
    assert sent == [first.id]


def test_many_at_once() -> None:
    calls: list[tuple[Any, list[Any], dict[str, Any]]] = [(jobs.add, [1, 2], {})]
    calls += [(jobs.refresh_prices, [name], {}) for name in ("tea", "tea", "coffee")]
    results = backend().enqueue_all(calls)
    assert results[1].id == results[2].id
    assert len({result.id for result in results}) == 3
    drain()
    assert sorted(jobs.seen, key=str) == [(1, 2), "coffee", "tea"]


def test_a_key_of_its_own() -> None:
    first = jobs.call_customer.enqueue("ada", text="hello")
    with pytest.raises(JobExists, match="has the same key") as raised:
        jobs.call_customer.enqueue("ada", text="are you there?")
    assert raised.value.id == first.id
    jobs.call_customer.enqueue("bob", text="hello")


def test_an_error_leaves_nothing_of_many() -> None:
    jobs.call_customer.enqueue("ada", text="hello")
    calls = [(jobs.call_customer, [name], {"text": "hello"}) for name in ("bob", "ada")]
    with pytest.raises(JobExists):
        backend().enqueue_all(calls)
    assert Message.objects.count() == 1


def test_within_a_time_it_also_counts_after_its_end() -> None:
    first = jobs.greet_daily.enqueue()
    drain()
    assert jobs.greet_daily.enqueue().id == first.id
    Message.objects.update(created_at=1)
    assert jobs.greet_daily.enqueue().id != first.id


def test_the_newest_of_those_that_wait_replaces_the_others() -> None:
    first, second = (jobs.index.enqueue("tea", text) for text in ("old", "new"))
    drain()
    assert jobs.seen == ["new"]
    for result, value in ((first, None), (second, "new")):
        result.refresh()
        assert result.return_value == value
    jobs.index.enqueue("tea", "later")
    drain()
    assert jobs.seen == ["new", "later"]


def test_a_scheduled_job_replaces_one_that_waits() -> None:
    jobs.index.enqueue("tea", "old")
    jobs.index.using(run_after=timezone.now() + timedelta(hours=1)).enqueue("tea", "new")
    drain()
    assert jobs.seen == []
    Message.objects.filter(topic__endswith="_scheduled").update(available_at=1)
    drain()
    drain()
    assert jobs.seen == ["new"]


def test_a_replaced_job_does_not_come_back() -> None:
    """The job that replaced it is cancelled. It may as well have ended long before, and been deleted."""
    later = timezone.now() + timedelta(hours=1)
    jobs.index.using(run_after=later).enqueue("tea", "old")
    assert backend().cancel(jobs.index.using(run_after=later).enqueue("tea", "new").id)
    Message.objects.update(available_at=1)
    drain()
    drain()
    assert jobs.seen == []


def test_a_job_that_a_reset_has_passed_does_not_count() -> None:
    first = jobs.refresh_prices.enqueue("tea")
    subscribe(topic_of("default"), GROUP, "latest")
    reset(topic_of("default"), GROUP, "latest")
    with pytest.raises(TaskResultDoesNotExist):
        first.refresh()
    assert jobs.refresh_prices.enqueue("tea").id != first.id


def test_inside_a_transaction_it_sees_its_own_jobs() -> None:
    with transaction.atomic():
        first = jobs.refresh_prices.enqueue("tea")
        assert jobs.refresh_prices.enqueue("tea").id == first.id
        transaction.set_rollback(True)
    assert Message.objects.count() == 0


@pytest.mark.parametrize("commits", [True, False])
def test_two_transactions_at_once_have_one_job(commits: bool) -> None:
    """The second one waits for the first one's end. Then it keeps the first one's job, or enqueues its own."""
    first = HeldTransaction(lambda: jobs.refresh_prices.enqueue("tea").id)
    with first, Background(lambda: jobs.refresh_prices.enqueue("tea").id) as second:
        assert second.is_blocked
        first.commit() if commits else first.rollback()
        assert second.result() == first.result()
    assert Message.objects.count() == 1


def enqueued_after(change: Callable[[], Any]) -> str:
    """Enqueue a job at REPEATABLE READ, after a change that the snapshot does not show. Return its id."""

    def work() -> str:
        connection.isolation_level = "repeatable read"  # type: ignore[attr-defined]
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM queue_messages")
        with Background(change) as other:
            other.result()
        return jobs.refresh_prices.enqueue("tea").id

    with HeldTransaction(work, isolation="repeatable read") as held:
        return held.commit()


def test_a_snapshot_does_not_hide_that_the_job_has_ended() -> None:
    first = jobs.refresh_prices.enqueue("tea")
    assert enqueued_after(drain) != first.id


def test_a_snapshot_does_not_hide_a_newer_job() -> None:
    id = enqueued_after(lambda: jobs.refresh_prices.enqueue("tea"))
    assert Message.objects.get().message_id == id


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_job_that_the_same_transaction_has_cancelled_does_not_count(isolation: str) -> None:
    first = jobs.refresh_prices.enqueue("tea")

    def work() -> str:
        connection.isolation_level = isolation  # type: ignore[attr-defined]
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM queue_messages")
        assert task_backends["default"].cancel(first.id)  # type: ignore[attr-defined]
        return jobs.refresh_prices.enqueue("tea").id

    with HeldTransaction(work, isolation=isolation) as held:
        assert held.commit() != first.id
    drain()
    assert jobs.seen == ["tea"]


def test_two_or_three_statements() -> None:
    with counted() as first:
        jobs.refresh_prices.enqueue("tea")
    with counted() as second:
        jobs.refresh_prices.enqueue("tea")
    drain()
    with counted() as third:
        jobs.refresh_prices.enqueue("tea")
    assert (first.count, second.count, third.count) == (2, 2, 3)
    for text in ("old", "new"):
        with counted() as replacing:
            jobs.index.enqueue("tea", text)
        assert replacing.count == 2, "without run_after, nothing is deleted: the account needs no DELETE"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"key": "name"}, "key must be a function"),
        ({"on_conflict": "drop"}, 'on_conflict must be "keep", "raise" or "replace", not'),
        ({"within": 0}, "within must be at least"),
        ({"within": 60, "on_conflict": "replace"}, "exclude each other"),
    ],
)
def test_wrong_values(values: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        Unique(**values)
    with pytest.raises(TypeError, match=r"unique must be django_mqueue\.tasks\.Unique"):
        job_options(unique=True)  # type: ignore[arg-type]


def test_a_key_that_is_no_string() -> None:
    with pytest.raises(TypeError, match="the key of a unique job must be a string, not int"):
        jobs.numbered.enqueue(7)
    assert Message.objects.count() == 0


def test_the_other_backend_of_a_queue_finds_the_job() -> None:
    both = {**tasks(), "second": tasks()["default"]}
    with override_settings(TASKS=both):
        first = jobs.refresh_prices.enqueue("tea")
        second = jobs.refresh_prices.using(backend="second").enqueue("tea")
        assert (second.id, second.backend) == (first.id, "default")


def test_a_queue_may_have_any_name() -> None:
    """Also one with a mark that ids of retries contain."""
    settings = tasks()
    settings["default"]["QUEUES"] = ["a~b"]
    with override_settings(TASKS=settings):
        tea = jobs.refresh_prices.using(queue_name="a~b")
        assert tea.enqueue("tea").id == tea.enqueue("tea").id
