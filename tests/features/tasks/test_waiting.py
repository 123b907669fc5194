"""``wait_for_result`` and ``await_result`` return when the job has ended, and never inside a transaction."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction

from django_mqueue import MQueueError
from django_mqueue.tasks import await_result, wait_for_result, waiting
from django_mqueue.tasks.compat import TaskResultStatus
from django_mqueue.testing import drain
from tests.support.transactions import Background

from . import jobs

pytestmark = pytest.mark.django_db(transaction=True)

WAYS = [wait_for_result, async_to_sync(await_result)]


@contextmanager
def worker_after_two_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the jobs when the caller has read its result twice."""
    reads, twice = [0], threading.Event()
    pauses = waiting._pauses

    def counted(timeout: float) -> Iterator[float]:
        for pause in pauses(timeout):
            reads[0] += 1
            if reads[0] == 3:
                twice.set()
            yield pause

    def work() -> None:
        from tests.support.running import run

        assert twice.wait(60)
        run(tasks=[], threads=1)

    monkeypatch.setattr(waiting, "_pauses", counted)
    with Background(work) as running:
        yield
        running.result()


@pytest.mark.parametrize("wait", WAYS, ids=["wait", "await"])
def test_the_wait_ends_with_the_job(wait: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = jobs.add.enqueue(1, 2), jobs.fail.enqueue()
    with worker_after_two_reads(monkeypatch):
        assert wait(good, timeout=60) is good
    assert good.return_value == 3
    assert wait(bad).status == TaskResultStatus.FAILED


@pytest.mark.parametrize("timeout", [0.01, timedelta(milliseconds=10)])
@pytest.mark.parametrize("wait", WAYS, ids=["wait", "await"])
def test_a_job_that_nobody_runs_is_an_error_that_names_it(wait: Any, timeout: Any) -> None:
    result = jobs.add.enqueue(1, 2)
    with pytest.raises(TimeoutError, match=f"job '{result.id}' has not ended within 0.01 s, and is READY"):
        wait(result, timeout=timeout)


def test_a_job_that_ends_during_the_last_pause_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: drain())
    monkeypatch.setattr(waiting, "time", clock)
    assert wait_for_result(jobs.add.enqueue(1, 2), timeout=0.01).return_value == 3


def test_there_is_no_wait_inside_a_transaction() -> None:
    with transaction.atomic():
        result = jobs.add.enqueue(1, 2)
        with pytest.raises(MQueueError, match="inside a transaction"):
            wait_for_result(result)


@pytest.mark.parametrize("timeout", [0, -1, "soon"])
def test_an_impossible_timeout_is_an_error(timeout: Any) -> None:
    result = jobs.add.enqueue(1, 2)
    with pytest.raises((TypeError, ValueError), match="timeout"):
        wait_for_result(result, timeout)


def test_a_program_with_an_open_connection_can_await() -> None:
    """The connection of the main thread must not be used in the event loop."""
    result = jobs.add.enqueue(1, 2)
    connection.ensure_connection()
    with pytest.raises(TimeoutError):
        asyncio.run(await_result(result, 0.01))


def test_awaiting_inside_a_transaction_is_an_error_too() -> None:
    result = jobs.add.enqueue(1, 2)
    with transaction.atomic(), pytest.raises(MQueueError, match="inside a transaction"):
        async_to_sync(await_result)(result, 0.01)
