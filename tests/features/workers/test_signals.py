"""Real processes of ``runconsumer`` receive signals."""

from __future__ import annotations

import signal

import pytest

from django_mqueue import publish
from django_mqueue.models import DeliveryState, PartitionLease, SubscriberHeartbeat
from tests.support.processes import Worker, Workers, wait_until
from tests.support.shop.models import Door, Step
from tests.support.subscribers import let_worker_die

pytestmark = pytest.mark.django_db(transaction=True)


def started(workers: Workers) -> Worker:
    """Start a worker. Two handlers wait at the door, and a third message waits behind them."""
    for n in range(3):
        publish("orders", {"n": n, "do": "wait", "door": "exit"}, key="k")
    worker = workers.start("orders:billing", "--threads", "2")
    wait_until(lambda: Step.objects.filter(what="start").count() == 2, "two handlers started")
    return worker


def goes_on(worker: Worker) -> bool:
    """Wait until the worker has renewed its lease twice, or has ended. Return true if it still runs."""
    renewed = PartitionLease.objects.values_list("lease_renewed_at", flat=True)
    for _ in range(2):
        before = renewed.get()
        wait_until(lambda: not worker.running or renewed.get() > before, "it renews its lease, or ends")  # noqa: B023
    return worker.running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_finishes_and_acks_what_runs_and_exits_0(number: signal.Signals) -> None:
    """The worker waits for running handlers and acks. It starts no more, frees its lease and deregisters its name."""
    with Workers() as workers:
        worker = started(workers)
        worker.send(number)
        assert goes_on(worker), "it does not wait for its handlers"
        Door.objects.create(name="exit")
        assert worker.wait() == 0
        assert "stopped: ack 2" in worker.output()
    assert sorted(Step.objects.filter(what="end").values_list("number", flat=True)) == [0, 1]
    assert Step.objects.count() == 4
    assert DeliveryState.objects.filter(acked=True).count() == 2
    assert not DeliveryState.objects.filter(in_flight=True).exists()
    assert set(PartitionLease.objects.values_list("holder", flat=True)) == {""}
    assert SubscriberHeartbeat.objects.get().deregistered_at is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_stops_at_once(number: signal.Signals) -> None:
    """The worker does not wait for its handlers. Their messages are delivered again, and nothing is lost."""
    with Workers() as workers:
        worker = started(workers)
        worker.send(number)
        assert goes_on(worker), "the first signal does not wait"
        worker.send(number)
        assert worker.wait() == 128 + number
        assert not Step.objects.exclude(what="start").exists(), "it has waited for the handlers"
        let_worker_die(worker)
        Door.objects.create(name="exit")
        follower = workers.start("orders:billing")
        wait_until(lambda: Step.objects.filter(what="end").count() == 3, "another has done them")
        assert follower.stop() == 0
    assert sorted(Step.objects.filter(what="end").values_list("number", flat=True)) == [0, 1, 2]
    assert set(Step.objects.filter(what="end", number__lt=2).values_list("attempt", flat=True)) == {2}


def test_an_idle_worker_stops_at_once_at_the_first_signal() -> None:
    """A poll interval of a minute does not delay the stop."""
    with Workers() as workers:
        worker = workers.start("orders:billing", "--poll-interval", "60")
        wait_until(lambda: SubscriberHeartbeat.objects.exists(), "it has joined")
        assert worker.stop() == 0
