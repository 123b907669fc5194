"""No decision uses the clock of the machine that a worker runs on."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from django_mqueue import publish
from django_mqueue.models import DeliveryState, PartitionLease, SubscriberHeartbeat
from tests.support.processes import Workers, database_ms, database_url, wait_until
from tests.support.shop.models import Door, Step
from tests.support.subscribers import let_worker_die

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = 3600.0


def renewed(name: str) -> int:
    return PartitionLease.objects.get(leased_by=name).lease_renewed_at


def beaten(name: str) -> int:
    return SubscriberHeartbeat.objects.get(subscriber_name=name).heartbeat_at


def test_workers_whose_clocks_are_an_hour_apart_share_the_work_fairly() -> None:
    """One clock is an hour behind, one an hour ahead. The third worker's connection uses another time zone."""
    for k in range(9):
        publish("orders", {"n": k}, key=f"k{k}")
    elsewhere = database_url(init_command="SET time_zone = '+11:00'")
    started = database_ms()
    with Workers() as workers:
        alive = [
            workers.start("orders:billing", "--name", "behind", clock=-HOUR),
            workers.start("orders:billing", "--name", "ahead", clock=HOUR),
            workers.start("orders:billing", "--name", "elsewhere", url=elsewhere),
        ]

        def shares() -> dict[str, int]:
            return dict(
                Counter(PartitionLease.objects.exclude(holder="").values_list("leased_by", flat=True))
            )

        wait_until(lambda: shares() == {"behind": 3, "ahead": 3, "elsewhere": 3}, "fair shares")
        for k in range(9):
            publish("orders", {"n": 100 + k}, key=f"k{k}")
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 18, "all are done")
        beats, leases = list(SubscriberHeartbeat.objects.all()), list(PartitionLease.objects.all())
        states = list(DeliveryState.objects.all())
        now = database_ms()
        for beat in beats:
            assert started <= beat.heartbeat_at <= now
        for lease in leases:
            assert started <= lease.lease_renewed_at <= now
        for state in states:
            assert started <= state.delivered_at <= int(state.acked_at or 0) <= now
            assert state.delivered_at < state.invisible_until <= state.delivered_at + 60_000
        assert [worker.stop() for worker in alive] == [0, 0, 0]
    starts = Step.objects.filter(what="start")
    assert starts.values("number").distinct().count() == starts.count() == 18
    assert starts.values("pid").distinct().count() == 3


@pytest.mark.parametrize("clock", [-HOUR, HOUR])
def test_a_worker_whose_clock_is_wrong_steals_no_living_lease_and_no_visible_message(clock: float) -> None:
    """By its clock, each lease expired an hour ago or lasts an hour longer. The worker does not use that clock."""
    publish("parcels", {"n": 1, "do": "wait", "door": "exit"}, key="k")
    with Workers() as workers:
        right = workers.start("parcels", "--name", "right")
        wait_until(lambda: Step.objects.exists(), "the first has started")
        wrong = workers.start("parcels", "--name", "wrong", clock=clock)
        wait_until(lambda: SubscriberHeartbeat.objects.count() == 2, "the second has joined")
        after = database_ms() + 1500  # Longer than the visibility timeout.
        wait_until(lambda: renewed("right") > after and beaten("wrong") > after, "both of them have gone on")
        assert Step.objects.count() == 1
        right.kill()
        let_worker_die(right)
        Door.objects.create(name="exit")
        wait_until(lambda: Step.objects.filter(what="end").exists(), "the second has taken over")
        assert wrong.stop() == 0


@pytest.mark.parametrize("clock", [-HOUR, HOUR])
def test_retries_are_due_by_the_databases_clock(clock: float) -> None:
    """The delay is half a second with any clock of the worker."""
    publish("orders", {"n": 1, "do": "retry", "times": 2, "delay": 0.5}, key="k")
    with Workers() as workers:
        worker = workers.start("orders:billing", clock=clock)
        wait_until(lambda: Step.objects.filter(what="end").exists(), "it has come to its end")
        assert worker.stop() == 0
    first, second, third = Step.objects.filter(what="start").order_by("id").values_list("at", flat=True)
    assert second - first >= 500_000
    assert third - second >= 500_000


def test_a_worker_whose_clocks_read_less_than_nothing_works() -> None:
    """The monotonic clock has no defined start, so it may be negative."""
    publish("orders", {"n": 1}, key="k")
    with Workers() as workers:
        worker = workers.start("orders:billing", "--drain", clock=-time.monotonic() - HOUR)
        assert worker.wait() == 0
    assert Step.objects.filter(what="end").exists()


def test_the_clocks_of_these_workers_are_wrong_indeed() -> None:
    """The tests above depend on this."""
    with Workers() as workers:
        publish("orders", {"n": 1, "do": "tell_time"}, key="k")
        worker = workers.start("orders:billing", "--drain", clock=HOUR)
        assert worker.wait() == 0
        told = float(worker.output().split("the time is ")[1].split()[0])
        assert abs(told - time.time() - HOUR) < 60
