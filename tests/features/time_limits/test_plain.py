"""``max_runtime`` of plain handlers: the attempt fails, and its thread can no longer settle the delivery."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from django_mqueue import (
    BatchFailure,
    Delivery,
    Message,
    NoRetry,
    RetryOn,
    StaleDelivery,
    TimeLimitExceeded,
    consumer,
    publish,
    publish_many,
)
from django_mqueue.models import DeliveryState
from django_mqueue.workers import executor
from tests.features.batch.batches import AT_ONCE, LATER, Batches, errors, letters, publish_all, states
from tests.support.processes import wait_until
from tests.support.running import Seen, registered, run
from tests.support.shop.models import Sale
from tests.support.waiting import PATIENCE

from .hanging import LIMIT, Hanging, running

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


def test_past_it_the_attempt_has_failed_and_comes_again(hanging: Hanging) -> None:
    """The error gives the reason and the line where the handler hung. The second attempt succeeds meanwhile."""
    publish("t", 1, key="k")

    def handle(message: Message) -> None:
        if message.attempt == 1:
            hanging.hang()

    with registered("t", seen := Seen(handle), max_runtime=LIMIT, retry=AT_ONCE):
        output = run(threads=1)
    assert "stopped: ack 1, nack 1" in output
    assert [message.attempt for message in seen.messages] == [1, 2]
    assert states() == [(True, 1, 1)]
    error = seen.messages[1].last_error
    assert error.startswith(
        f"django_mqueue.exceptions.TimeLimitExceeded: the handler ran longer than its max_runtime of {LIMIT} s\n"
    )
    assert "hanging.hang()" in error
    assert "self.go.wait(PATIENCE)" in error
    assert "_handle" not in error.partition("Its stack then")[2], "none of the worker's own frames"


def test_out_of_attempts_it_is_dead_lettered(hanging: Hanging) -> None:
    publish("t", 1, key="k")
    with registered(
        "t",
        seen := Seen(lambda m: hanging.hang()),
        max_runtime=timedelta(seconds=LIMIT),
        retry=AT_ONCE,
        max_attempts=2,
    ):
        output = run(threads=1)
    assert "stopped: dead-letter 1, nack 1" in output
    assert seen.attempts(1) == [1, 2]
    assert states() == [(True, 2, 1)]
    assert f"max_runtime of {LIMIT} s" in letters("t")[b"1"]


@pytest.mark.parametrize(
    ("retry", "acked"),
    [(NoRetry(), True), (RetryOn(TimeLimitExceeded, policy=LATER), False), (RetryOn(KeyError), True)],
)
def test_the_retry_policy_is_asked(hanging: Hanging, retry: Any, acked: bool) -> None:
    publish("t", 1)
    with registered("t", lambda m: hanging.hang(), max_runtime=LIMIT, retry=retry):
        run()
    assert states() == [(acked, 1, 0)]


def test_a_policy_that_fails_or_exits(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    """The retry is not due in this run."""
    later = executor.UNKNOWN_ERROR._replace(delay=600.0)
    monkeypatch.setattr("django_mqueue.workers.pool.UNKNOWN_ERROR", later)
    publish("t", 1)

    def retry(attempt: int) -> float:
        raise SystemExit(1)

    with registered("t", lambda m: hanging.hang(), max_runtime=LIMIT, retry=retry):
        assert "nack 1" in run()
    assert errors() == ["the handler failed, and its error cannot be shown"]


def test_quick_ones_are_none_of_its_business() -> None:
    publish_many("t", range(200))
    with registered("t", seen := Seen(), max_runtime=PATIENCE):
        assert "stopped: ack 200" in run()
    assert sorted(seen.payloads) == list(range(200))


def test_its_late_answer_changes_nothing(hanging: Hanging) -> None:
    """``extend`` and ``ack`` raise ``StaleDelivery``, because the worker has settled the delivery."""
    publish("t", 1, key="k")
    subject: list[Delivery] = []

    def handle(message: Delivery) -> None:
        subject.append(message)
        hanging.hang(lambda: message.extend(3600))

    with registered("t", handle, max_runtime=LIMIT, retry=LATER):
        run()
        before = states(), DeliveryState.objects.get().invisible_until
        hanging.let_go()
    assert (states(), DeliveryState.objects.get().invisible_until) == before
    assert isinstance(hanging.over[0], StaleDelivery)
    with pytest.raises(StaleDelivery):
        subject[0].ack()
    assert states() == [(False, 1, 0)]


@pytest.mark.parametrize("batch", [False, True])
def test_an_atomic_handler_that_comes_late_rolls_back(hanging: Hanging, batch: bool) -> None:
    """The effects of the late attempt are rolled back. The effects of the next attempt stay."""
    publish("t", 1, key="k")
    first = threading.Event()

    def handle(message: Any) -> None:
        Sale.objects.create(number=1)
        publish("sold", 1)
        if not first.is_set():
            first.set()
            hanging.hang(lambda: Sale.objects.create(number=2))

    with registered("t", handle, max_runtime=LIMIT, atomic=True, retry=AT_ONCE, batch=batch):
        assert "ack 1, nack 1" in run()
        assert Sale.objects.count() == 1
        hanging.let_go()
    assert len(hanging.over) == 1
    assert [sale.number for sale in Sale.objects.all()] == [1]
    assert states() == [(True, 1, 1)]


def test_strict_the_key_goes_on_when_it_is_given_up(hanging: Hanging) -> None:
    """The retry runs, and then the next messages, while the first attempt still hangs."""
    for n in range(3):
        publish("t", n, key="k")

    def handle(message: Message) -> None:
        if message.payload == 0 and message.attempt == 1:
            hanging.hang()

    with (
        registered("t", seen := Seen(handle), strict=True, max_runtime=LIMIT, retry=[0.05]),
        running(hanging, threads=1),
    ):
        wait_until(lambda: len(seen.messages) == 4, "all are handled")
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 3, "all are done")
    assert [(m.payload, m.attempt) for m in seen.messages] == [(0, 1), (0, 2), (1, 1), (2, 1)]


def test_a_batch_fails_as_one(hanging: Hanging) -> None:
    """The message that the filter removes is acknowledged. All others fail."""
    publish_all("t", range(4))
    wants = lambda message: message.payload != 1  # noqa: E731
    with registered(
        "t",
        seen := Batches(lambda m: hanging.hang()),
        batch=True,
        max_runtime=LIMIT,
        filter=wants,
        retry=LATER,
    ):
        assert "ack 1, nack 3" in run()
    assert seen.payloads == [[0, 2, 3]]
    assert states() == [(False, 1, 0), (True, 0, 0), (False, 1, 0), (False, 1, 0)]


def test_concurrency_counts_those_that_are_not_given_up(hanging: Hanging) -> None:
    publish_many("t", range(3))

    def handle(message: Message) -> None:
        if message.payload == 0:
            hanging.hang()

    with registered("t", seen := Seen(handle), concurrency=1, max_runtime=LIMIT, retry=LATER):
        assert "ack 2, nack 1" in run(threads=3)
    assert sorted(seen.payloads) == [0, 1, 2]


@pytest.mark.parametrize("value", [0, -1, "5", True, float("nan"), timedelta(0), float("inf")])
def test_what_is_no_limit(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="max_runtime must be"):
        consumer("t", group="g", max_runtime=value)


def test_batch_failures_are_no_matter_once_it_is_too_late(hanging: Hanging) -> None:
    publish_all("t", [0, 1])

    def handle(messages: list[Delivery]) -> None:
        hanging.hang()
        raise BatchFailure({messages[0]: ValueError("late")})

    with registered("t", Batches(handle), batch=True, max_runtime=LIMIT, retry=LATER):
        run()
        hanging.let_go()
    assert states() == [(False, 1, 0)] * 2
