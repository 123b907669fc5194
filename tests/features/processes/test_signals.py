"""Signals to a supervisor and its children."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from django_mqueue import publish
from django_mqueue.models import DeliveryState, PartitionLease, SubscriberHeartbeat
from tests.support.processes import Worker, Workers, wait_until
from tests.support.shop.models import Door, Step

from .children import children, pids, running

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_server]


def started(workers: Workers) -> Worker:
    """Start two children. A handler of each waits at the door, and a third message waits behind them."""
    for n, key in enumerate(["a", "b", "a"]):
        publish("orders", {"n": n, "do": "wait", "door": "exit"}, key=key)
    worker = workers.start("orders:billing", "--processes", "2", "--threads", "1")
    wait_until(lambda: len(pids()) == 2, "two children work")
    return worker


def goes_on(worker: Worker) -> bool:
    """Wait until each child has renewed its lease twice, or the worker has ended. Return true if it still runs."""

    def renewals() -> dict[str, int]:
        held = PartitionLease.objects.exclude(holder="")
        return dict(held.values_list("partition_key", "lease_renewed_at"))

    def renewed() -> bool:
        return all(at > before[key] for key, at in renewals().items())

    for _ in range(2):
        before = renewals()
        wait_until(lambda: not worker.running or renewed(), "all leases are renewed, or it ends")
    return worker.running


def assert_settled_and_left(acked: int) -> None:
    """Assert that each handler that started has ended, and the children have left nothing behind."""
    assert Step.objects.filter(what="end").count() == Step.objects.filter(what="start").count() == acked
    assert DeliveryState.objects.filter(acked=True).count() == acked
    assert not DeliveryState.objects.filter(in_flight=True).exists()
    assert set(PartitionLease.objects.values_list("holder", flat=True)) == {""}
    assert not SubscriberHeartbeat.objects.filter(deregistered_at=None).exists()


def to_supervisor(number: signal.Signals) -> Callable[[Worker], None]:
    return lambda worker: worker.send(number)


def to_group(number: signal.Signals) -> Callable[[Worker], None]:
    """Like Ctrl-C in a terminal, or a service manager that sends SIGTERM to each process of a service."""
    return lambda worker: os.killpg(worker.pid, number)


@pytest.mark.parametrize(
    "send",
    [
        to_supervisor(signal.SIGTERM),
        to_supervisor(signal.SIGINT),
        to_group(signal.SIGINT),
        to_group(signal.SIGTERM),
    ],
    ids=["SIGTERM", "SIGINT", "Ctrl-C", "SIGTERM-to-all"],
)
def test_the_first_signal_finishes_and_acks_what_runs_and_exits_0(send: Callable[[Worker], None]) -> None:
    with Workers() as workers:
        worker = started(workers)
        send(worker)
        assert goes_on(worker), "it does not wait for its handlers"
        assert len(children(worker)) == 2
        Door.objects.create(name="exit")
        assert worker.wait() == 0
        assert "stopped: ack 2" in worker.output()
    assert_settled_and_left(2)


def test_a_child_that_gets_sigterm_twice_finishes_what_runs() -> None:
    """The supervisor sends it, and a service manager sends it. Between the two, the child handles the first."""
    with Workers() as workers:
        worker = started(workers)
        worker.send(signal.SIGTERM)
        assert goes_on(worker), "the first signal does not wait"
        for pid in children(worker):
            os.kill(pid, signal.SIGTERM)
        assert goes_on(worker), "it does not wait for its handlers"
        Door.objects.create(name="exit")
        assert worker.wait() == 0
    assert_settled_and_left(2)


@pytest.mark.parametrize(
    "send", [to_supervisor(signal.SIGTERM), to_group(signal.SIGINT)], ids=["SIGTERM", "Ctrl-C"]
)
def test_the_second_signal_ends_all_at_once(send: Callable[[Worker], None]) -> None:
    with Workers() as workers:
        worker = started(workers)
        send(worker)
        assert goes_on(worker), "the first signal does not wait"
        send(worker)
        assert worker.wait() in (128 + signal.SIGTERM, 128 + signal.SIGINT)
        wait_until(lambda: not any(map(running, pids())), "the children have ended")
    assert not Step.objects.exclude(what="start").exists(), "it has waited for the handlers"


def test_the_children_finish_what_runs_if_the_supervisor_is_killed() -> None:
    with Workers() as workers:
        worker = started(workers)
        worker.kill()
        wait_until(lambda: worker.output().count("its supervisor has ended") == 2, "the children notice it")
        assert all(map(running, pids()))
        Door.objects.create(name="exit")
        wait_until(lambda: not any(map(running, pids())), "the children end")
    assert_settled_and_left(2)


def test_no_child_is_replaced_while_the_supervisor_stops() -> None:
    """One of two children is killed. The supervisor waits for the other one."""
    with Workers() as workers:
        worker = started(workers)
        worker.send(signal.SIGTERM)
        assert goes_on(worker)
        dead, other = sorted(pids())
        os.kill(dead, signal.SIGKILL)
        wait_until(lambda: "killed by SIGKILL" in worker.output(), "the supervisor has noticed")
        assert running(other)
        Door.objects.create(name="exit")
        assert worker.wait() == 0
        assert worker.output().count("worker process started") == 2
