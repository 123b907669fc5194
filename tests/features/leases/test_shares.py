"""Fair shares: every partition has an owner, owners differ by at most one, and no partition ever has two."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from django.test import override_settings

from django_mqueue import Delivery, Subscription, publish
from django_mqueue.models import PartitionLease
from tests.support.processes import gather, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

QUICK = {"DISCOVERY_INTERVAL": 0.02, "LEASE_DURATION": 1.0, "LEASE_RENEWAL_INTERVAL": 0.2}


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with override_settings(MQUEUE=QUICK):
        yield


class Group:
    """Subscribers of one group, polled in turn. Each delivery is acked by the one who has it, if ``acks``."""

    def __init__(self, stack: ExitStack, count: int) -> None:
        self.stack, self.acks = stack, True
        self.members: dict[str, Subscription] = {}
        for number in range(count):
            self.join(f"w{number:02d}")

    def join(self, name: str) -> Subscription:
        member = self.members[name] = Subscription("t", "g", name=name)
        return self.stack.enter_context(member)

    def leave(self, name: str) -> None:
        self.members.pop(name).close()

    def die(self, name: str) -> None:
        """Stops polling, says nothing. (Its ``close`` at the end of the test comes long after it was replaced.)"""
        del self.members[name]

    def round(self) -> list[Delivery]:
        """One poll of each; what they got, and whose lease it was under."""
        got = []
        for name, member in self.members.items():
            for delivery in member.poll():
                assert leased_by(delivery.hold.ticket.partition) == name
                if self.acks:
                    delivery.ack()
                got.append(delivery)
        return got

    def shares(self) -> list[int]:
        """How many partitions each member has, most first; those of nobody and of the gone are not among them."""
        self.round()
        held = Counter(PartitionLease.objects.values_list("leased_by", flat=True))
        return sorted((held[name] for name in self.members), reverse=True)

    def settle(self, *shares: int) -> None:
        wait_until(lambda: self.shares() == list(shares), f"the shares are {shares}", timeout=10)


def leased_by(partition: str) -> str:
    return PartitionLease.objects.get(partition_key=partition).leased_by


def partitions(count: int, payload: object = "first") -> None:
    for n in range(count):
        publish("t", payload, key=f"k{n:02d}")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_12_partitions_over_5_subscribers_are_3_3_2_2_2(stack: ExitStack) -> None:
    partitions(12)
    group = Group(stack, 5)
    group.settle(3, 3, 2, 2, 2)
    for _ in range(20):
        assert group.shares() == [3, 3, 2, 2, 2], "and it stays so"


def test_one_who_was_alone_gives_up_what_is_too_much_when_others_come(stack: ExitStack) -> None:
    partitions(12)
    group = Group(stack, 1)
    group.settle(12)
    for count in range(1, 5):
        group.join(f"w{count:02d}")
    group.settle(3, 3, 2, 2, 2)


def test_more_subscribers_than_partitions(stack: ExitStack) -> None:
    """Three have one each, two have none and take over when an owner leaves."""
    partitions(3)
    group = Group(stack, 5)
    group.settle(1, 1, 1, 0, 0)
    owner = leased_by("k00")
    group.leave(owner)
    group.settle(1, 1, 1, 0)


def test_one_that_leaves_is_replaced_at_once(stack: ExitStack) -> None:
    """Its partitions are free the moment it has left; with leases of a minute the others have them in a few rounds."""
    with override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 60}):
        partitions(12)
        group = Group(stack, 5)
        group.settle(3, 3, 2, 2, 2)
        group.leave("w01")
        assert PartitionLease.objects.filter(holder="").count() in (2, 3)
        group.settle(3, 3, 3, 3)


def test_one_that_dies_is_replaced_within_the_lease(stack: ExitStack) -> None:
    """No partition is without an owner for longer than the lease and the few looks that it takes to see it."""
    partitions(12)
    group = Group(stack, 5)
    group.settle(3, 3, 2, 2, 2)
    group.die("w02")
    partitions(12, "second")
    gather(group.round, 12, "all twelve have come", timeout=1.0 + 0.5)
    group.settle(3, 3, 3, 3)


def test_no_lease_expires_under_a_worker_that_polls(stack: ExitStack) -> None:
    """Owners do not change while nobody comes or goes, and there is work in every partition."""
    partitions(12)
    group = Group(stack, 5)
    group.settle(3, 3, 2, 2, 2)
    group.acks = False
    partitions(12, "second")
    before = dict(PartitionLease.objects.values_list("partition_key", "leased_at"))
    started = PartitionLease.objects.order_by("lease_renewed_at").first()
    assert started is not None
    renewed = started.lease_renewed_at
    wait_until(
        lambda: group.round() is not None and oldest_renewal() > renewed + 2000,
        "two leases have passed",
        timeout=10,
    )
    assert dict(PartitionLease.objects.values_list("partition_key", "leased_at")) == before


def oldest_renewal() -> int:
    return min(PartitionLease.objects.values_list("lease_renewed_at", flat=True))


def test_new_partitions_find_their_owners_at_once(stack: ExitStack) -> None:
    """While five are at work, each of twelve new keys is delivered within a few rounds, and shares stay fair."""
    group = Group(stack, 5)
    group.round()
    partitions(12)
    gather(group.round, 12, "all twelve have come", timeout=5)
    group.settle(3, 3, 2, 2, 2)


def test_a_partition_that_moves_has_nothing_in_flight(stack: ExitStack) -> None:
    """The owner finishes what it has of a partition before it gives it away: nothing is delivered twice."""
    partitions(4)
    first = stack.enter_context(Subscription("t", "g", name="a"))
    held = wait_until(lambda: first.poll(), "it has all four")
    while len(held) < 4:
        held += first.poll()
    second = stack.enter_context(Subscription("t", "g", name="b"))
    pause = threading.Event()
    for _ in range(30):  # and as many discoveries
        first.poll()
        assert second.poll() == []
        pause.wait(0.025)
    for delivery in held:
        assert delivery.ack()
    group = Group(stack, 0)
    group.members = {"a": first, "b": second}
    group.settle(2, 2)


def test_partitions_without_work_are_given_up_and_found_again(stack: ExitStack) -> None:
    """Two lease durations after its last message a partition has no owner and no row; its next message finds one."""
    with override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 0.4, "LEASE_RENEWAL_INTERVAL": 0.1}):
        partitions(5)
        group = Group(stack, 2)
        group.settle(3, 2)
        wait_until(lambda: group.round() == [] and not PartitionLease.objects.exists(), "all are given up")
        partitions(5, "second")
        got = gather(group.round, 5, "they are found again", timeout=5)
        assert {delivery.attempt for delivery in got} == {1}
