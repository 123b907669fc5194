"""Handlers that hang: the worker continues unless too many hang, and the log reports them."""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from django_mqueue import (
    Message,
    TooManyHanging,
    publish,
    publish_many,
)
from django_mqueue.models import DeliveryState, PartitionLease
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
from tests.features.batch.batches import AT_ONCE, LATER, Batches, publish_all, states
from tests.support.processes import wait_until
from tests.support.running import Seen, registered, run
from tests.support.shop.models import Sale
from tests.support.waiting import PATIENCE

from .hanging import LIMIT, Hanging, running

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


def test_the_others_go_on_and_the_lease_is_renewed(hanging: Hanging) -> None:
    """The worker's only thread hangs. A new thread replaces it."""
    publish("t", 0, key="k")
    publish_many("t", range(1, 40))

    def handle(message: Message) -> None:
        if message.payload == 0:
            hanging.hang()

    with registered("t", seen := Seen(handle), max_runtime=LIMIT, retry=LATER):
        output = run(threads=1)
    assert "ack 39, nack 1" in output
    assert sorted(seen.payloads) == list(range(40))


def lock_state(message: Any) -> None:
    mine = {"consumer_group": "g", "topic": "t", "partition_key": "k", "message_offset": message.offset}
    assert DeliveryState.objects.select_for_update().values_list("in_flight").get(**mine) == (True,)


def test_an_atomic_handler_that_holds_its_delivery_locked_does_not_hold_up_its_worker(
    hanging: Hanging,
) -> None:
    """The handler's open transaction locks its delivery. Only the record of its failure waits for the lock."""
    publish("t", 0, key="k")

    def handle(message: Any) -> None:
        if message.payload == 0:
            Sale.objects.create(number=0)
            lock_state(message)
            hanging.hang()

    with (
        registered("t", seen := Seen(handle), max_runtime=LIMIT, atomic=True, retry=LATER),
        running(hanging) as worker,
    ):
        wait_until(lambda: worker.hanging, "it is given up")
        publish_many("t", range(1, 20))
        wait_until(lambda: len(seen.messages) == 20, "the others go on")
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 19, "and are done")
        hanging.go.set()
        wait_until(lambda: states()[0] == (False, 1, 0), "then it has failed")
    assert len(hanging.over) == 1, "it came to its end, and was rolled back"
    assert not Sale.objects.exists()


def renewals() -> set[tuple[str, int]]:
    return set(PartitionLease.objects.values_list("partition_key", "lease_renewed_at"))


@pytest.mark.parametrize("limit", [None, 10 * PATIENCE])
def test_leases_are_renewed_while_all_threads_hang(hanging: Hanging, limit: float | None) -> None:
    """The worker renews its leases, with a distant time limit and without one."""
    publish_many("t", range(3))
    with (
        registered("t", seen := Seen(lambda m: hanging.hang()), max_runtime=limit),
        running(hanging, threads=2),
    ):
        wait_until(lambda: len(seen.messages) == 2, "both threads hang")
        seen_renewals = renewals()
        partitions = len(seen_renewals)

        def each_renewed_thrice() -> bool:
            seen_renewals.update(renewals())
            return len(seen_renewals) >= 4 * partitions

        wait_until(each_renewed_thrice, "the leases are renewed")
        hanging.go.set()
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 3, "all are done")
    assert {message.attempt for message in seen.messages} == {1}


def test_where_too_many_hang_the_process_ends(hanging: Hanging, caplog: pytest.LogCaptureFixture) -> None:
    """With one thread, the fourth hanging handler ends the process. The worker settles the fourth delivery first."""
    publish_many("t", range(8))
    with registered("t", seen := Seen(lambda m: hanging.hang()), max_runtime=LIMIT, retry=LATER):
        runner = Runner(handlers(["t"]), RunOptions(threads=1, max_seconds=PATIENCE))
        with pytest.raises(TooManyHanging, match="4 handlers exceeded their max_runtime"):
            runner.run()
    assert runner.hanging == 4
    assert len(seen.messages) == 4
    assert DeliveryState.objects.filter(failure_count=1, in_flight=False).count() == 4
    assert not DeliveryState.objects.filter(in_flight=True).exists()
    assert set(PartitionLease.objects.values_list("holder", flat=True)) == {""}
    assert sum("4 handlers exceeded" in record.message for record in caplog.records) == 1


def has_failed(offset: int) -> bool:
    return DeliveryState.objects.filter(message_offset=offset, failure_count=1).exists()


def test_those_that_end_at_last_do_not_count(hanging: Hanging) -> None:
    """Six handlers, one after the other, run until their failure is recorded. Four at once would end the worker."""

    def handle(message: Message) -> None:
        if message.payload < 6:
            with hanging.go.limited():
                wait_until(lambda: has_failed(message.offset), "its failure is noted")

    with (
        registered("t", seen := Seen(handle), max_runtime=LIMIT, retry=LATER),
        running(hanging, threads=1) as worker,
    ):
        for number in range(6):
            offset = publish("t", number).offset
            wait_until(partial(has_failed, offset), "it fails")
            wait_until(lambda: not worker.hanging, "its handler ends")
        publish("t", 6)
        wait_until(lambda: DeliveryState.objects.filter(acked=True).exists(), "the worker continues")
    assert seen.payloads == list(range(7))


def test_a_hanging_handler_is_told_of(hanging: Hanging, caplog: pytest.LogCaptureFixture) -> None:
    message = publish("t", 1, key="k", id="the-id")
    with registered("t", lambda m: hanging.hang(), name="its name", max_runtime=LIMIT, retry=LATER):
        run()
        hanging.let_go()
    (given_up,) = [r for r in caplog.records if "handler exceeded max_runtime" in r.message]
    assert given_up.levelno == logging.WARNING
    assert (
        "handler exceeded max_runtime: its name: topic t, partition k,"
        f" offset {message.offset}, id the-id: running for " in given_up.message
    )
    assert f"(max_runtime is {LIMIT} s)" in given_up.message
    assert "self.go.wait(PATIENCE)" in given_up.message
    assert any("handler ended after max_runtime" in record.message for record in caplog.records)


def test_one_without_a_limit_is_told_of_after_ten_visibility_timeouts(
    hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker warns again after twice that time. It does not stop the handler."""
    publish_all("t", [1, 2])
    with (
        registered("t", Batches(lambda m: hanging.hang()), batch=True, visibility_timeout=0.02),
        running(hanging, threads=1),
    ):

        def told() -> list[str]:
            return [r.message for r in caplog.records if "handler still running" in r.message]

        wait_until(
            lambda: len(told()) >= 2 and "self.go.wait(PATIENCE)" in told()[-1],
            "two warnings, the last one with the line where it hangs",
        )
        hanging.go.set()
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 2, "it ends, and is done")
    (ran,) = re.findall(r" and 1 more: for (\d+\.\d) s", told()[0])
    assert float(ran) >= 0.2
    assert states() == [(True, 0, 0)] * 2


def test_a_handler_with_open_transactions_of_its_own(
    hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler is not atomic, but its own transaction locks its delivery. The worker does not wait for the lock."""
    publish("t", 0, key="k")

    def handle(message: Any) -> None:
        if message.payload == 0 and message.attempt == 1:
            with transaction.atomic():
                lock_state(message)
                hanging.hang()

    with registered("t", seen := Seen(handle), max_runtime=LIMIT, retry=AT_ONCE), running(hanging) as worker:
        wait_until(lambda: worker.hanging, "it is given up")
        publish_many("t", range(1, 10))
        wait_until(lambda: len(seen.messages) == 10, "the others go on")
        hanging.go.set()
        wait_until(lambda: len(seen.messages) == 11, "it comes again")
    assert seen.attempts(0) == [1, 2]
    assert "has locked its rows" not in caplog.text, "its worker waited for a lock"
