"""Limits: at most some jobs with the same key run at the same time."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_mqueue import Subscription
from django_mqueue.models import Message
from django_mqueue.tasks import Limit, MQueueBackend, Unique, enqueue_group, job_options, recurring_jobs
from django_mqueue.tasks.compat import task_backends
from django_mqueue.testing import drain
from tests.support.processes import FAST, Workers, wait_until
from tests.support.running import run
from tests.support.statements import counted
from tests.support.subscribers import engine_of, let_worker_die, make_due
from tests.support.waiting import gather

from . import jobs
from .conftest import refreshed, tasks

pytestmark = pytest.mark.django_db(transaction=True)


def partitions() -> set[str]:
    return set(Message.objects.values_list("partition_key", flat=True))


def enqueue(customer: str, count: int) -> None:
    """Enqueue jobs, so that each permit of the customer has several."""
    backend = task_backends["default"]
    assert isinstance(backend, MQueueBackend)
    backend.enqueue_all([(jobs.call_limited, [customer, number], {}) for number in range(count)])


def polled(subscription: Subscription) -> list[Any]:
    """Return what the next polls deliver. Before each, all periodic work is made due."""
    found = []
    for _ in range(10):
        make_due(subscription)
        found += subscription.poll()
    return found


def test_no_more_than_the_limit_of_a_key_is_delivered_until_one_has_ended() -> None:
    enqueue("ada", 20)
    enqueue("ben", 20)
    assert len(partitions()) == 4
    with Subscription("tasks.default", "tasks", batch_size=50) as subscription:
        running = gather(subscription.poll, 4, "two jobs of each customer")
        assert sorted(one.payload["args"][0] for one in running) == ["ada", "ada", "ben", "ben"]
        assert polled(subscription) == []
        running[0].ack()
        (following,) = polled(subscription)
        assert following.payload["args"][0] == running[0].payload["args"][0]


def test_all_jobs_run_and_their_results_are_found() -> None:
    enqueue("ada", 10)
    result = jobs.call_limited.enqueue("ada", 77)
    run(tasks=[], threads=4)
    assert sorted(jobs.seen) == sorted([*(("ada", number) for number in range(10)), ("ada", 77)])
    assert refreshed(result).return_value == 77


def test_a_job_that_waits_for_its_retry_holds_no_permit() -> None:
    with override_settings(TASKS=tasks(max_attempts=2, backoff=[600])):
        first, second = jobs.fails_limited.enqueue(1), jobs.fails_limited.enqueue(0)
        drain()
    assert (refreshed(first).status, first.attempts) == ("READY", 1)
    assert refreshed(second).status == "SUCCESSFUL"


def test_a_killed_worker_gives_its_permit_back_and_nothing_runs_before(tmp_path: Path) -> None:
    """The second worker gets no job of the key while the first one may still run."""
    note = tmp_path / "runs"
    hanging = jobs.hangs_alone.enqueue(str(note))
    program, setting = ("django", "runconsumer"), json.dumps(tasks())
    with Workers() as workers:
        first = workers.run(program, "--tasks", "--threads", "4", "--name", "first", TEST_TASKS=setting)
        wait_until(lambda: note.exists() and note.read_text(), "the job has started")
        other = jobs.notes_alone.enqueue(str(note))
        second = workers.run(program, "--tasks", "--threads", "4", "--drain", TEST_TASKS=setting)
        wait_until(lambda: "messages that others have locked or leased" in second.output(), "it waits")
        assert (note.read_text(), refreshed(other).status) == ("started\n", "READY")
        first.kill()
        let_worker_die(first)
        assert second.wait() == 0
    assert (refreshed(hanging).return_value, refreshed(other).status) == ("done", "SUCCESSFUL")
    assert sorted(note.read_text().split()) == ["other", "started", "started"]


def test_a_job_that_a_dead_worker_may_still_run_holds_its_permit() -> None:
    """It is in quarantine until it runs alone. Meanwhile no other job of its partition is delivered."""
    jobs.notes_alone.enqueue("x"), jobs.notes_alone.enqueue("y")
    with Subscription("tasks.default", "tasks", batch_size=50) as first:
        (one,) = gather(first.poll, 1, "the first job")
        engine_of(first).state.quarantine(one.status.receipt, False, 0)
        engine_of(first).state.remove_in_flight(one.status.receipt)
        engine_of(first).state.mark_ready(engine_of(first).state.partitions[one.status.receipt.partition])
        assert engine_of(first).claimer.claim(50, 50) == []


RARE = {**FAST, "DISCOVERY_INTERVAL": 3600, "LEASE_DURATION": 36_000}
"""No discovery during a test: it would set the subscriber's estimate of the database's time anew."""


def later(subscription: Subscription, seconds: float) -> None:
    """Let the subscriber's estimate of the database's time be ahead."""
    clock = engine_of(subscription).state.clock
    clock.set(clock.now() + int(seconds * 1000))


@override_settings(MQUEUE=RARE)
def test_a_rate() -> None:
    """Two jobs start a minute, also if each takes no time, and if another worker takes over."""
    backend = task_backends["default"]
    assert isinstance(backend, MQueueBackend)
    backend.enqueue_all([(jobs.call_api, [number], {}) for number in range(20)])
    assert len(partitions()) == 2
    with Subscription("tasks.default", "tasks", batch_size=50) as first:
        one, two = gather(first.poll, 2, "two jobs")
        one.ack()
        two.ack()
        assert polled(first) == []
        later(first, 30)
        assert first.poll() == []
    with Subscription("tasks.default", "tasks", batch_size=50) as second:
        assert polled(second) == []
        later(second, 61)
        found = gather(second.poll, 2, "two more")
        assert second.poll() == []
        second.ack(found)
        assert second.poll() == []


@override_settings(MQUEUE=RARE)
def test_a_rate_also_holds_for_a_job_whose_worker_has_died() -> None:
    jobs.call_api.enqueue(1)
    with Subscription("tasks.default", "tasks") as first:
        gather(first.poll, 1, "the job")
    with Subscription("tasks.default", "tasks") as second:
        assert polled(second) == []
        later(second, 61)
        (again,) = gather(second.poll, 1, "the job again")
        assert again.attempt == 2


def test_a_takeover_of_keys_of_a_rate_costs_no_statement_for_each() -> None:
    def takeover(customers: int) -> int:
        backend = task_backends["default"]
        assert isinstance(backend, MQueueBackend)
        backend.enqueue_all([(jobs.call_once_a_minute, [f"c{number}"], {}) for number in range(customers)])
        with Subscription("tasks.default", "tasks") as subscription:
            with counted() as cost:
                (delivery,) = subscription.poll(1)
            assert len(engine_of(subscription).state.partitions) == customers
            delivery.ack()
        return cost.count

    few = takeover(2)
    assert takeover(60) < few + 10


def test_drain_leaves_what_a_rate_holds_back_and_moves_its_clock() -> None:
    for number in range(5):
        jobs.call_api.enqueue(number)
    drain()
    assert 0 < len(jobs.seen) <= 2
    drain(until=timedelta(minutes=10))
    assert sorted(jobs.seen) == [0, 1, 2, 3, 4]


def test_one_statement_enqueues_a_job() -> None:
    with CaptureQueriesContext(
        connection,
    ) as statements:
        jobs.call_limited.enqueue("ada")
    assert len(statements) == 1, statements.captured_queries


def test_hooks_groups_firings_and_scheduled_jobs_are_limited() -> None:
    entry = {"task": f"{jobs.__name__}.call_limited", "args": ["ada"], "every": timedelta(days=1000)}
    with override_settings(TASKS=tasks(recurring={"calls": entry})):
        (job,) = recurring_jobs()
        job.enqueue_next()
        job.enqueue_next()
        enqueue_group([], (jobs.call_limited, ["ada"], {}))
        jobs.call_limited.using(run_after=timezone.now(), priority=50).enqueue("ada")
    found = list(Message.objects.values_list("partition_key", flat=True))
    assert len(found) == 3
    assert {row.metadata["headers"]["task-limit"] for row in Message.objects.all()} == {"ada"}
    assert all(partition.startswith(" =") for partition in found), found
    assert len({partition.partition("-")[0] for partition in found}) == 1


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Limit(0), ValueError, "running must be at least 1"),
        (lambda: Limit(True), TypeError, "running must be an int"),
        (lambda: Limit(2, every=0), ValueError, "every"),
        (lambda: Limit(2, key=3), TypeError, "key must be a string or a function"),  # type: ignore[arg-type]
        (lambda: job_options(limit=3), TypeError, "limit must be django_mqueue.tasks.Limit"),  # type: ignore[arg-type]
    ],
)
def test_bad_limits(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_unique_and_limit_exclude_each_other() -> None:
    with (
        override_settings(TASKS=tasks(unique=Unique())),
        pytest.raises(ValueError, match="unique and limit exclude each other"),
    ):
        jobs.call_limited.enqueue("ada")


@pytest.mark.parametrize("run_jobs", [drain, lambda: run(tasks=[], threads=1)])
def test_a_job_fails_whose_options_exclude_each_other_since_it_was_enqueued(run_jobs: Any) -> None:
    result = jobs.call_limited.enqueue("ada")
    with override_settings(TASKS=tasks(unique=Unique())):
        run_jobs()
    assert "exclude each other" in refreshed(result).errors[0].traceback
    assert result.status == "FAILED"


def test_a_key_that_is_no_string_is_an_error_before_anything_is_enqueued() -> None:
    with pytest.raises(TypeError, match="the key of a limit must be a string, not int"):
        jobs.call_limited.enqueue(7)  # type: ignore[arg-type]
    assert not Message.objects.exists()
