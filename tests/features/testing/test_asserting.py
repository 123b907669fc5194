"""Check what was published and enqueued, and make messages for handlers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.utils import timezone

from django_mqueue import Message, Postpone, publish
from django_mqueue.tasks import Limit, enqueue_group
from django_mqueue.tasks.compat import BaseTaskBackend
from django_mqueue.testing import assert_enqueued, assert_published, drain, make_message, perform_job
from tests.features.tasks import jobs
from tests.features.tasks.conftest import tasks
from tests.support.fixtures import with_settings
from tests.support.running import registered

pytestmark = pytest.mark.django_db


backend = with_settings(TASKS=tasks())


def test_what_was_published() -> None:
    publish("t", {"n": 1}, key="k", kind="made")
    publish("t", {"n": 2}, delay=60)
    publish("other", {"n": 1})
    (found,) = assert_published("t", {"n": 1})
    assert (found.key, found.kind) == ("k", "made")
    assert [message.payload for message in assert_published("t", count=2)] == [{"n": 1}, {"n": 2}]
    assert_published("t", key="k", kind="made")
    assert_published("t", {"n": 3}, count=0)


def test_what_was_not_published_is_an_error_that_lists_what_was() -> None:
    publish("t", {"n": 1}, key="k", id="a")
    with pytest.raises(AssertionError) as raised:
        assert_published("t", {"n": 2}, key="k")
    assert str(raised.value) == (
        "0 messages of 't' have payload={'n': 2}, key='k', not 1. Published were:\n"
        "  payload={'n': 1}, key='k', id='a', kind=''"
    )
    with pytest.raises(AssertionError, match="1 messages of 't' have payload=<ANY>, not 2"):
        assert_published("t", count=2)
    with pytest.raises(
        TypeError, match="unknown field 'offset'; the fields are: key, id, kind, headers, group"
    ):
        assert_published("t", offset=1)


def test_dead_letters_are_published_too() -> None:
    jobs.fail.enqueue("no")
    drain()
    (letter,) = assert_published("tasks.default_dlq", kind=jobs.fail.module_path)
    assert letter.payload == {"args": ["no"], "kwargs": {}}


def test_what_was_enqueued() -> None:
    result = jobs.add.enqueue(1, b=2)
    jobs.add.using(queue_name="mail", run_after=timezone.now() + timedelta(hours=1)).enqueue(3, 4)
    jobs.echo.enqueue((1, 2), at="noon")
    (found,) = assert_enqueued(jobs.add, 1, b=2)
    assert (found.id, found.status) == (result.id, "READY")
    assert len(assert_enqueued(jobs.add, count=2)) == 2
    assert_enqueued(jobs.echo, (1, 2), at="noon")
    assert_enqueued(jobs.double, count=0)
    with pytest.raises(AssertionError) as raised:
        assert_enqueued(jobs.add, 1, 2)
    assert str(raised.value) == (
        "0 jobs of tests.features.tasks.jobs.add have (1, 2), not 1. Enqueued were:\n  (1, b=2)\n  (3, 4)"
    )
    with pytest.raises(AssertionError, match="have any arguments, not 1"):
        assert_enqueued(jobs.double)


def test_the_last_job_of_a_group_was_enqueued() -> None:
    _, last = enqueue_group([(jobs.add, [1, 2], {})], (jobs.adds_up, [5], {}))
    (found,) = assert_enqueued(jobs.adds_up, 5)
    assert found.id == last.id


def test_what_another_backend_enqueued() -> None:
    with override_settings(TASKS={**tasks(), "other": tasks()["default"]}):
        result = jobs.add.using(backend="other").enqueue(1, 2)
        assert [found.id for found in assert_enqueued(jobs.add)] == [result.id]


def test_a_job_is_performed() -> None:
    assert perform_job(jobs.add, 1, 2).return_value == 3
    assert perform_job(jobs.add.using(queue_name="mail"), 1, b=4).return_value == 5
    failed = perform_job(jobs.fail, "no")
    assert (failed.status, failed.errors[0].exception_class) == ("FAILED", ValueError)
    assert_enqueued(jobs.fail, "no")


def test_a_task_of_another_backend_is_refused() -> None:
    dummy = BaseTaskBackend.__module__.replace("base", "dummy.DummyBackend")
    with override_settings(TASKS={"default": {**tasks()["default"], "BACKEND": dummy, "OPTIONS": {}}}):
        jobs.add.enqueue(1, 2)
        for check in (assert_enqueued, perform_job):
            with pytest.raises(ImproperlyConfigured, match=r"'default' of .*jobs\.add is DummyBackend"):
                check(jobs.add, 1, 2)


def test_a_message_for_a_handler() -> None:
    message = make_message({"at": (1, 2)}, topic="orders", key="ada", attempt=2)
    assert (message.payload, message.topic, message.key, message.attempt) == (
        {"at": [1, 2]},
        "orders",
        "ada",
        2,
    )
    assert make_message(b"raw").payload == b"raw"
    with pytest.raises(TypeError):
        make_message(object())
    with pytest.raises(TypeError):
        make_message(1, colour="red")
    assert_published("orders", count=0)


def test_jobs_of_later_run_at_their_time() -> None:
    later = jobs.add.using(run_after=timezone.now() + timedelta(hours=5)).enqueue(1, 2)
    drain(until=timedelta(hours=4))
    later.refresh()
    assert later.status == "READY"
    drain(until=timedelta(hours=6))
    later.refresh()
    assert later.return_value == 3
    assert later.started_at is not None


def test_a_retry_that_is_due_in_the_pause_of_its_limit_runs_after_the_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"limit": Limit(1, every=60, key="shared"), "backoff": [5, 5], "max_attempts": 3}
    monkeypatch.setattr(jobs.number_of_attempt.func, "mqueue_job_options", options, raising=False)
    result = jobs.number_of_attempt.enqueue()
    drain(until=timedelta(minutes=10))
    result.refresh()
    assert result.return_value == 3


def test_messages_of_a_derived_topic() -> None:
    publish("orders", 1, delay=60)
    assert_published("orders_scheduled", count=1)
    assert_published("orders_replies", count=0)


def test_a_postponement_is_not_logged_as_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    def postpone(message: Message) -> None:
        raise Postpone(600)

    publish("t", 1)
    with registered("t", postpone):
        assert len(drain()) == 1
    assert "attempt failed" not in caplog.text


def test_a_failure_is_logged_as_a_worker_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    def fail(message: Message) -> None:
        raise ValueError("no")

    publish("t", 1)
    with registered("t", fail, max_attempts=2, retry=[5]):
        drain(until=timedelta(minutes=1))
    first, second = (line for line in caplog.messages if line.startswith("attempt failed"))
    assert "attempt 1, again in 5 s: ValueError: no" in first
    assert "attempt 2, dead-lettered: ValueError: no" in second


@override_settings(USE_TZ=False)
def test_the_time_of_a_made_message_is_aware_as_in_a_worker() -> None:
    assert make_message().published_at.utcoffset() == timedelta(0)
