"""A worker process is killed. Others handle its messages long before its leases expire."""

from __future__ import annotations

import pytest

from django_mqueue import publish
from django_mqueue.models import PartitionLease
from tests.support.processes import FAST, Worker, Workers, wait_until
from tests.support.shop.models import Step
from tests.support.subscribers import done

pytestmark = pytest.mark.django_db(transaction=True)

LONG = {**FAST, "LEASE_DURATION": 3600}
KEYS = 6


def publish_some(numbers: range) -> None:
    for n in numbers:
        publish("orders", {"n": n}, key=f"k{n % KEYS}")


def has_leases(worker: Worker) -> bool:
    return PartitionLease.objects.filter(leased_by__contains=f"-{worker.pid}-").count() == KEYS


@pytest.mark.parametrize("when", ["later", "running"])
def test_a_killed_worker_is_replaced(when: str) -> None:
    """A worker that starts after its death, or a running worker, takes its place."""
    publish_some(range(30))
    with Workers(LONG) as workers:
        first = workers.start("orders:billing")
        wait_until(lambda: done() == 30 and has_leases(first), "it has all partitions")
        if when == "running":
            second = workers.start("orders:billing")
            wait_until(
                lambda: PartitionLease.objects.filter(leased_by__contains=f"-{second.pid}-").exists(),
                "shares",
            )
        first.kill()
        publish_some(range(30, 60))
        if when == "later":
            second = workers.start("orders:billing")
        wait_until(lambda: done() == 60, "the other has done all")
        wait_until(lambda: has_leases(second), "it has all partitions")
        assert second.stop() == 0
        assert "worker is dead, its leases are released" in second.output()
    assert Step.objects.filter(what="end").count() == 60
