"""Fair shares with real worker processes. One of them leaves, and another one is killed."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from django_mqueue import publish
from django_mqueue.models import DeliveryState, PartitionLease, SubscriberHeartbeat
from tests.support.processes import Workers, wait_until
from tests.support.shop.models import Step
from tests.support.steps import assert_never_two_at_once, by_key
from tests.support.subscribers import let_worker_die
from tests.support.threads import Background

pytestmark = pytest.mark.django_db(transaction=True)

PARTITIONS = 12


@contextmanager
def trickle() -> Iterator[Callable[[], int]]:
    """Publish one message to each partition every 0.2 seconds.

    Yield a function that ends it and returns the number of messages.
    """
    end = threading.Event()

    def work() -> int:
        published = 0
        while not end.wait(0.2):
            for k in range(PARTITIONS):
                publish("orders", {"n": published}, key=f"k{k:02d}")
                published += 1
        return published

    publishing = Background(work).start()

    def result() -> int:
        end.set()
        return publishing.result()

    try:
        yield result
    finally:
        result()


def owned() -> Counter[str]:
    """Return the number of partitions of each worker that has some."""
    return Counter(PartitionLease.objects.exclude(holder="").values_list("leased_by", flat=True))


def shares() -> list[int]:
    return sorted(owned().values(), reverse=True)


def test_12_partitions_over_5_processes_one_leaves_and_one_is_killed() -> None:
    """The shares are 3/3/2/2/2, then 3/3/3/3 at once, then 4/4/4.

    Two processes never handle one partition at the same time.
    """
    with trickle() as end, Workers() as workers:
        alive = [workers.start("orders:billing", "--name", f"w{n}") for n in range(5)]
        wait_until(lambda: shares() == [3, 3, 2, 2, 2], "five have fair shares")
        assert alive[1].stop(signal.SIGTERM) == 0
        assert not PartitionLease.objects.filter(leased_by="w1").exclude(holder="").exists(), "it has left"
        wait_until(lambda: shares() == [3, 3, 3, 3], "four have fair shares")
        alive[3].kill()
        let_worker_die(alive[3])
        wait_until(lambda: shares() == [4, 4, 4], "three have fair shares")
        count = end()
        done = DeliveryState.objects.filter(acked=True)
        wait_until(lambda: done.count() == count, "all are done")
        assert [alive[n].stop() for n in (0, 2, 4)] == [0, 0, 0]
    for steps in by_key("orders", "billing").values():
        assert_never_two_at_once(steps, killed={alive[3].pid})


def test_more_processes_than_partitions() -> None:
    """Three workers share two partitions. The worker without a partition takes over when an owner leaves.

    The first two names get a partition each, in whatever order the workers join.
    """
    for n in range(2):
        publish("orders", {"n": n}, key=f"k{n}")
    with Workers() as workers:
        alive = {name: workers.start("orders:billing", "--name", name) for name in ("a", "b", "c")}
        wait_until(lambda: SubscriberHeartbeat.objects.count() == 3, "all have joined")
        wait_until(lambda: owned() == {"a": 1, "b": 1}, "two have one each")
        owner = PartitionLease.objects.get(partition_key="k0").leased_by
        assert alive.pop(owner).stop() == 0
        wait_until(lambda: shares() == [1, 1], "the third has stepped in")
        publish("orders", {"n": 2}, key="k0")
        wait_until(lambda: Step.objects.filter(what="end", number=2).exists(), "and works")
        assert [worker.stop() for worker in alive.values()] == [0, 0]
