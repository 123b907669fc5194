"""``max_runtime`` of plain handlers: the attempt has failed, and what the thread still does comes too late."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from django_mqueue import (
    BatchFailure,
    Delivery,
    Message,
    NoRetry,
    RetryOn,
    StaleDelivery,
    TimeLimitExceeded,
    TooManyHanging,
    consumer,
    publish,
    publish_many,
)
from django_mqueue.models import DeliveryState, PartitionLease
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
from tests.shop.models import Sale
from tests.support.processes import wait_until
from tests.support.running import Seen, registered, run
from tests.support.threads import Background
from tests.test_batch.batches import AT_ONCE, LATER, Batches, errors, letters, publish_all, states

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]

LIMIT = 0.15


class Hanging:
    """What handlers hang in, until the test lets them go; then it waits for them to end."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.over: list[object] = []
        self._inside = 0
        self._lock = threading.Lock()

    def hang(self, then: Callable[[], object] = lambda: None) -> None:
        with self._lock:
            self._inside += 1
        try:
            assert self.go.wait(30)
            self.over.append(then())
        except BaseException as error:
            self.over.append(error)
            raise
        finally:
            with self._lock:
                self._inside -= 1

    def let_go(self) -> None:
        self.go.set()
        wait_until(lambda: not self._inside, "all have come out")
        wait_until(
            lambda: not any(t.name.startswith("mqueue-handler") for t in threading.enumerate()),
            "their threads end",
        )


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    found = Hanging()
    yield found
    found.let_go()


@contextmanager
def running(threads: int = 2, **options: Any) -> Iterator[Runner]:
    """What is registered, run in the background until the block ends; nothing goes wrong."""
    runner = Runner(handlers(["t"]), RunOptions(threads=threads, max_seconds=20, **options))
    background = Background(runner.run)
    try:
        yield runner
    finally:
        runner.stop()
        background.result()


def test_past_it_the_attempt_has_failed_and_comes_again(hanging: Hanging) -> None:
    """With a clear reason, and the place where it hung; the second attempt is done meanwhile."""
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
        "django_mqueue.exceptions.TimeLimitExceeded: the handler ran longer than its max_runtime of 0.15 s\n"
    )
    assert "hanging.hang()" in error
    assert "self.go.wait(30)" in error
    assert "_invoke" not in error.partition("It stood here")[2], "none of the worker's own frames"


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
    assert "max_runtime of 0.15 s" in letters("t")[b"1"]


@pytest.mark.parametrize(
    ("retry", "acked"),
    [(NoRetry(), True), (RetryOn(TimeLimitExceeded, policy=LATER), False), (RetryOn(KeyError), True)],
)
def test_the_retry_policy_is_asked(hanging: Hanging, retry: Any, acked: bool) -> None:
    publish("t", 1)
    with registered("t", lambda m: hanging.hang(), max_runtime=LIMIT, retry=retry):
        run()
    assert states() == [(acked, 1, 0)]


def test_a_policy_that_fails_or_exits(hanging: Hanging) -> None:
    publish("t", 1)

    def retry(attempt: int) -> float:
        raise SystemExit(1)

    with registered("t", lambda m: hanging.hang(), max_runtime=LIMIT, retry=retry):
        assert "nack 1" in run()
    assert errors() == ["the handler failed, and its error cannot be shown"]


def test_the_others_go_on_and_the_lease_is_renewed(hanging: Hanging) -> None:
    """Its only thread hangs: another takes its place."""
    publish("t", 0, key="k")
    publish_many("t", range(1, 40))

    def handle(message: Message) -> None:
        if message.payload == 0:
            hanging.hang()

    with registered("t", seen := Seen(handle), max_runtime=LIMIT, retry=LATER):
        output = run(threads=1)
    assert "ack 39, nack 1" in output
    assert sorted(seen.payloads) == list(range(40))


def test_quick_ones_are_none_of_its_business() -> None:
    publish_many("t", range(200))
    with registered("t", seen := Seen(), max_runtime=5):
        assert "stopped: ack 200" in run()
    assert sorted(seen.payloads) == list(range(200))


def test_its_late_answer_changes_nothing(hanging: Hanging) -> None:
    """Neither does what it asks of its delivery: that has been answered."""
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
    """The next attempt's effects are the ones that stay."""
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


def test_an_atomic_handler_that_holds_its_delivery_locked_does_not_hold_up_its_worker(
    hanging: Hanging,
) -> None:
    """It has asked for more time in its transaction, which never ends: its answer waits, and nobody else does."""
    publish("t", 0, key="k")

    def handle(message: Any) -> None:
        if message.payload == 0:
            Sale.objects.create(number=0)
            message.extend(5)
            hanging.hang()

    with (
        registered("t", seen := Seen(handle), max_runtime=LIMIT, atomic=True, retry=LATER),
        running() as worker,
    ):
        wait_until(lambda: seen.messages, "it hangs")
        publish_many("t", range(1, 20))
        wait_until(lambda: len(seen.messages) == 20, "the others go on", timeout=5)
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 19, "and are done", timeout=5)
        wait_until(lambda: worker.hanging, "it is given up")
        hanging.go.set()
        wait_until(lambda: states()[0] == (False, 1, 0), "then it has failed")
    assert len(hanging.over) == 1, "it came to its end, and was rolled back"
    assert not Sale.objects.exists()


def lease_age(key: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 - lease_renewed_at"
            " FROM queue_partition_leases WHERE partition_key = %s",
            [key],
        )
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("limit", [None, 60])
def test_leases_are_renewed_while_all_threads_hang(hanging: Hanging, limit: float | None) -> None:
    """Longer than a lease lasts (two seconds), with a limit that is far away, and with none."""
    publish_many("t", range(3))
    with registered("t", seen := Seen(lambda m: hanging.hang()), max_runtime=limit), running(threads=2):
        wait_until(lambda: len(seen.messages) == 2, "both threads hang")
        ages: list[int] = []

        def enough() -> bool:
            ages.append(
                max(
                    lease_age(name) for name in PartitionLease.objects.values_list("partition_key", flat=True)
                )
            )
            return len(ages) * 0.1 > 2.6

        wait_until(enough, "longer than a lease", every=0.1)
        assert max(ages) < 1500
        hanging.go.set()
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 3, "all are done")
    assert {message.attempt for message in seen.messages} == {1}


def test_strict_the_key_goes_on_when_it_is_given_up(hanging: Hanging) -> None:
    """With its retry, and then with the next: beside the one that hangs still."""
    for n in range(3):
        publish("t", n, key="k")

    def handle(message: Message) -> None:
        if message.payload == 0 and message.attempt == 1:
            hanging.hang()

    with (
        registered("t", seen := Seen(handle), strict=True, max_runtime=LIMIT, retry=[0.05]),
        running(threads=1),
    ):
        wait_until(lambda: len(seen.messages) == 4, "all are handled")
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 3, "all are done")
    assert [(m.payload, m.attempt) for m in seen.messages] == [(0, 1), (0, 2), (1, 1), (2, 1)]


def test_a_batch_fails_as_one(hanging: Hanging) -> None:
    """But for what its handler was not given: that is acked."""
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


def test_where_too_many_hang_the_process_ends(hanging: Hanging, caplog: pytest.LogCaptureFixture) -> None:
    """It has one thread, and may have four that hang. The fourth is answered before it goes."""
    publish_many("t", range(8))
    with registered("t", seen := Seen(lambda m: hanging.hang()), max_runtime=LIMIT, retry=LATER):
        runner = Runner(handlers(["t"]), RunOptions(threads=1, max_seconds=20))
        with pytest.raises(TooManyHanging, match="4 handlers have run past their max_runtime"):
            runner.run()
    assert runner.hanging == 4
    assert len(seen.messages) == 4
    assert DeliveryState.objects.filter(failure_count=1, in_flight=False).count() == 4
    assert not DeliveryState.objects.filter(in_flight=True).exists()
    assert set(PartitionLease.objects.values_list("holder", flat=True)) == {""}
    assert sum("4 handlers have run past" in record.message for record in caplog.records) == 1


def test_those_that_end_at_last_do_not_count(hanging: Hanging) -> None:
    publish_many("t", range(12))

    def handle(message: Message) -> None:
        if message.payload < 6:
            threading.Event().wait(LIMIT * 2)

    with registered("t", seen := Seen(handle), max_runtime=LIMIT, retry=LATER):
        assert "ack 6, nack 6" in run(threads=1)
    assert len(seen.messages) == 12


def test_a_hanging_handler_is_told_of(hanging: Hanging, caplog: pytest.LogCaptureFixture) -> None:
    message = publish("t", 1, key="k", id="the-id")
    with registered("t", lambda m: hanging.hang(), name="its name", max_runtime=LIMIT, retry=LATER):
        run()
        hanging.let_go()
    (given_up,) = [r for r in caplog.records if "is given up" in r.message]
    assert given_up.levelno == logging.WARNING
    assert (
        f"its name: topic t, partition k, offset {message.offset}, id the-id: has been running for 0."
        in given_up.message
    )
    assert "(max_runtime is 0.15 s)" in given_up.message
    assert "self.go.wait(30)" in given_up.message
    assert any("has ended at last" in record.message for record in caplog.records)


def test_one_without_a_limit_is_told_of_after_ten_visibility_timeouts(
    hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    """And again when it has taken twice as long. It is left to run."""
    publish_all("t", [1, 2])
    with (
        registered("t", Batches(lambda m: hanging.hang()), batch=True, visibility_timeout=0.02),
        running(threads=1),
    ):

        def told() -> list[str]:
            return [r.message for r in caplog.records if "has been running for" in r.message]

        wait_until(lambda: len(told()) == 2, "two warnings")
        hanging.go.set()
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 2, "it ends, and is done")
    assert " and 1 more: has been running for 0.2" in told()[0]
    assert "self.go.wait(30)" in told()[0]
    assert states() == [(True, 0, 0)] * 2


def test_a_handler_with_open_transactions_of_its_own(hanging: Hanging) -> None:
    """It holds its delivery locked by ``extend``, without being atomic: nobody waits for it."""
    publish("t", 0, key="k")

    def handle(message: Any) -> None:
        if message.payload == 0 and message.attempt == 1:
            with transaction.atomic():
                message.extend(5)
                hanging.hang()

    with registered("t", seen := Seen(handle), max_runtime=LIMIT, retry=AT_ONCE), running() as worker:
        wait_until(lambda: seen.messages, "it hangs")
        publish_many("t", range(1, 10))
        wait_until(lambda: len(seen.messages) == 10, "the others go on", timeout=5)
        wait_until(lambda: worker.hanging, "it is given up")
        hanging.go.set()
        wait_until(lambda: len(seen.messages) == 11, "it comes again")
    assert seen.attempts(0) == [1, 2]


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
