"""The setting ``REQUIRE_TRANSACTION`` and jobs: ``enqueue`` needs a transaction, the queue's own publishes do not."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.test import override_settings

from django_mqueue import NoTransaction
from django_mqueue.tasks import enqueue_group
from django_mqueue.tasks.backend import Call
from django_mqueue.testing import perform_job
from tests.support.processes import FAST
from tests.support.transactions import statements

from . import jobs
from .test_contract import backend
from .test_recurring import due, make_due, recurring, scheduled, text, the_job, work

pytestmark = pytest.mark.django_db(transaction=True)

REQUIRED = {**FAST, "REQUIRE_TRANSACTION": True}


@override_settings(MQUEUE=REQUIRED)
def test_a_job_is_enqueued_in_a_transaction_only() -> None:
    """A second queue does not change that, although the backend opens a transaction for several queues."""
    calls: list[Call] = [(jobs.add, [1, 2], {}), (jobs.add.using(queue_name="mail"), [3, 4], {})]
    with statements() as seen:
        with pytest.raises(NoTransaction, match=r"topic 'tasks\.default'"):
            jobs.add.enqueue(1, 2)
        with pytest.raises(NoTransaction):
            backend().enqueue_all(calls)
    assert seen == []
    with transaction.atomic():
        results = backend().enqueue_all(calls)
    work()
    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [3, 7]


@override_settings(MQUEUE={**REQUIRED, "TOPICS": {"tasks.mail": {"REQUIRE_TRANSACTION": False}}})
def test_a_queue_can_be_exempt() -> None:
    assert jobs.add.using(queue_name="mail").enqueue(1, 2).id


@override_settings(MQUEUE=REQUIRED)
def test_the_helper_for_tests_has_a_transaction_of_its_own() -> None:
    assert perform_job(jobs.add, 1, 2).return_value == 3


@override_settings(MQUEUE=REQUIRED)
def test_recurring_jobs_and_run_now_work_as_before() -> None:
    with recurring():
        work()
        make_due(due(0))
        work()
        assert scheduled() == [text(due(1))]
        result = the_job().run_now()
        work()
        result.refresh()
        assert result.return_value == 3


@override_settings(MQUEUE=REQUIRED)
def test_hooks_are_enqueued_as_before() -> None:
    with transaction.atomic():
        result = jobs.has_hooks.enqueue(0)
    work()
    assert ("hook", result.id) in jobs.seen


@override_settings(MQUEUE=REQUIRED)
def test_a_group_is_enqueued_in_a_transaction_only() -> None:
    calls: list[Call] = [(jobs.add, [1, 2], {})]
    with statements() as seen, pytest.raises(NoTransaction, match=r"topic 'tasks\.default'"):
        enqueue_group(calls, (jobs.adds_up, [1], {}))
    assert seen == []
    with transaction.atomic():
        enqueue_group(calls, (jobs.adds_up, [1], {}))
