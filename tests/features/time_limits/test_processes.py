"""Real workers whose handlers hang: one stop signal, two stop signals, and too many hanging handlers."""

from __future__ import annotations

import signal

import pytest

from django_mqueue import publish
from django_mqueue.models import DeliveryState, PartitionLease
from tests.features.batch.batches import errors
from tests.support.processes import Worker, Workers, database_ms, wait_until
from tests.support.shop.models import Step
from tests.support.subscribers import let_worker_die

pytestmark = pytest.mark.django_db(transaction=True)


def hangs(workers: Workers, topic: str, do: str = "wait", number: int = 1) -> Worker:
    """Start a worker whose handler hangs."""
    publish(topic.partition(":")[0], {"n": number, "do": do, "door": "none", "seconds": 600}, key="k")
    if do == "lock_and_sleep":  # An atomic handler has not committed its steps.
        program = "django", "runconsumer"
        worker = workers.run(program, topic, "--threads", "1", TEST_LIMIT_FROM_LOCK="1")
        wait_until(lambda: "has locked its delivery" in worker.output(), "it hangs")
        return worker
    worker = workers.start(topic, "--threads", "1")
    wait_until(Step.objects.filter(what="start").exists, "it hangs")
    return worker


@pytest.mark.parametrize(
    ("topic", "do"),
    [("errands", "wait"), ("errands", "sleep"), ("calls", "sleep"), ("sums", "lock_and_sleep")],
    ids=["in the database", "elsewhere", "async", "atomic, with its delivery locked"],
)
def test_told_to_stop_it_waits_for_the_limit_and_no_longer(topic: str, do: str) -> None:
    """At the limit the attempt fails and the worker exits with 0. The handler's thread ends with the process."""
    with Workers() as workers:
        worker = hangs(workers, topic, do)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        assert "(max_runtime is 1 s)" in worker.output()
    state = DeliveryState.objects.get()
    if do == "lock_and_sleep":  # Its transaction blocked the record of the failure: quarantine follows.
        assert (state.in_flight, state.failure_count) == (True, 0)
        return
    assert (state.in_flight, state.failure_count) == (False, 1)
    assert errors() == [
        "django_mqueue.exceptions.TimeLimitExceeded: the handler ran longer than its max_runtime of 1 s"
    ]
    assert set(PartitionLease.objects.values_list("holder", flat=True)) == {""}


def test_without_a_limit_the_first_signal_waits_and_the_second_ends_it() -> None:
    """The worker renews its lease while it waits. Another worker gets the message when this lease has expired."""
    with Workers() as workers:
        worker = hangs(workers, "orders:billing")
        worker.send(signal.SIGTERM)
        sent = database_ms()
        for _ in range(3):
            renewed = PartitionLease.objects.filter(lease_renewed_at__gt=sent)
            wait_until(lambda: not worker.running or renewed.exists(), "its lease is renewed")  # noqa: B023
            sent = PartitionLease.objects.get().lease_renewed_at
        assert worker.running
        worker.send(signal.SIGTERM)
        assert worker.wait() == 128 + signal.SIGTERM
        assert not Step.objects.exclude(what="start").exists(), "it has waited for the handler"
        let_worker_die(worker)
        another = workers.start("orders:billing")
        wait_until(lambda: Step.objects.filter(what="start").count() == 2, "another has it")
        another.kill()
    assert sorted(Step.objects.values_list("attempt", flat=True)) == [1, 2]


def test_where_too_many_hang_the_process_ends_with_1_and_its_successor_goes_on() -> None:
    """Every errand hangs. With one thread, the fourth hanging handler ends the process."""
    with Workers() as workers:
        worker = hangs(workers, "errands", "sleep")
        for number in range(2, 6):
            publish("errands", {"n": number, "do": "sleep", "seconds": 600}, key=f"k{number}")
        assert worker.wait() == 1
        assert "4 handlers exceeded their max_runtime" in worker.output()
        assert not DeliveryState.objects.filter(in_flight=True).exists()
        assert DeliveryState.objects.filter(failure_count__gte=1).count() >= 1
        publish("errands", {"n": 9}, key="other")
        successor = workers.start("errands", "--threads", "4")
        wait_until(lambda: Step.objects.filter(what="end", number=9).exists(), "its successor goes on")
        successor.kill()


def test_a_child_process_whose_last_messages_hang_is_not_replaced() -> None:
    for number in range(4):
        publish("errands", {"n": number, "do": "sleep", "seconds": 600}, key=f"k{number}")
    with Workers() as workers:
        worker = workers.start(
            "errands", "--threads", "1", "--max-messages", "4", "--max-messages-per-child", "100"
        )
        assert worker.wait() == 0
        assert "worker process died" in worker.output()
        assert "another starts" not in worker.output()
