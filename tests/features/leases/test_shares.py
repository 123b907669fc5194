"""Fair shares: each partition has exactly one owner, and the shares of owners differ by at most one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from django_mqueue import Delivery, Subscription, publish
from django_mqueue.models import PartitionLease
from tests.support.fixtures import with_settings
from tests.support.processes import database_ms, gather, wait_until
from tests.support.subscribers import engine_of, let_die, make_due
from tests.support.threads import raw_connection

pytestmark = pytest.mark.django_db(transaction=True)

LEASE = 3600
QUICK = {"DISCOVERY_INTERVAL": 0.02, "LEASE_DURATION": LEASE, "LEASE_RENEWAL_INTERVAL": 0.2}


quick = with_settings(MQUEUE=QUICK)


class Group:
    """Subscribers of one group, polled in turn. With ``acks``, the subscriber acks each delivery."""

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
        """Stop polling ``name``, and let its leases expire. Its ``close`` runs long after it was replaced."""
        del self.members[name]
        let_die(name)

    def round(self) -> list[Delivery]:
        """Poll each member once and return the deliveries.

        Assert that the member leases the partition of each delivery.
        """
        got = []
        for name, member in self.members.items():
            for delivery in member.poll():
                assert leased_by(delivery.status.receipt.partition) == name
                if self.acks:
                    delivery.ack()
                got.append(delivery)
        return got

    def shares(self) -> list[int]:
        """Return the number of partitions of each member, highest first.

        Partitions without a current member do not count.
        """
        self.round()
        held = Counter(PartitionLease.objects.values_list("leased_by", flat=True))
        return sorted((held[name] for name in self.members), reverse=True)

    def settle(self, *shares: int) -> None:
        wait_until(lambda: self.shares() == list(shares), f"the shares are {shares}")


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
    """Three subscribers have one partition each. Two have none, and take over when an owner leaves."""
    partitions(3)
    group = Group(stack, 5)
    group.settle(1, 1, 1, 0, 0)
    owner = leased_by("k00")
    group.leave(owner)
    group.settle(1, 1, 1, 0)


def test_one_that_leaves_is_replaced_at_once(stack: ExitStack) -> None:
    """Its partitions are free immediately. The others lease them long before a lease expires."""
    partitions(12)
    group = Group(stack, 5)
    group.settle(3, 3, 2, 2, 2)
    group.leave("w01")
    assert PartitionLease.objects.filter(holder="").count() in (2, 3)
    group.settle(3, 3, 3, 3)


def test_one_that_dies_is_replaced_within_the_lease(stack: ExitStack) -> None:
    partitions(12)
    group = Group(stack, 5)
    group.settle(3, 3, 2, 2, 2)
    group.die("w02")
    for member in group.members.values():
        make_due(member)  # Renewals are also due, but renew no lease of the dead subscriber.
    partitions(12, "second")
    gather(group.round, 12, "all twelve have come")
    group.settle(3, 3, 3, 3)


def test_no_lease_expires_under_a_worker_that_polls(stack: ExitStack) -> None:
    """Owners do not change while no subscriber joins or leaves and every partition has work.

    Each lease nearly expires twice, and is renewed.
    """
    partitions(12)
    group = Group(stack, 5)
    group.settle(3, 3, 2, 2, 2)
    group.acks = False
    partitions(12, "second")
    before = dict(PartitionLease.objects.values_list("partition_key", "leased_at"))
    for _ in range(2):
        nearly_expired = database_ms() - LEASE * 900
        PartitionLease.objects.update(lease_renewed_at=nearly_expired)
        wait_until(
            lambda: group.round() is not None and oldest_renewal() > nearly_expired,  # noqa: B023
            "all leases are renewed",
        )
    assert dict(PartitionLease.objects.values_list("partition_key", "leased_at")) == before


def oldest_renewal() -> int:
    return min(PartitionLease.objects.values_list("lease_renewed_at", flat=True))


def test_new_partitions_find_their_owners_at_once(stack: ExitStack) -> None:
    """Five subscribers run. Each of twelve new keys is delivered within a few rounds, and the shares stay fair."""
    group = Group(stack, 5)
    group.round()
    partitions(12)
    gather(group.round, 12, "all twelve have come")
    group.settle(3, 3, 2, 2, 2)


def test_a_partition_that_moves_has_nothing_in_flight(stack: ExitStack) -> None:
    """The owner finishes its deliveries of a partition before it gives the partition away.

    Nothing is delivered twice.
    """
    partitions(4)
    first = stack.enter_context(Subscription("t", "g", name="a"))
    held = wait_until(lambda: first.poll(), "it has all four")
    while len(held) < 4:
        held += first.poll()
    second = stack.enter_context(Subscription("t", "g", name="b"))
    for _ in range(30):
        for member in (first, second):
            make_due(member)
        first.poll()
        assert second.poll() == []
    for delivery in held:
        assert delivery.ack()
    group = Group(stack, 0)
    group.members = {"a": first, "b": second}
    group.settle(2, 2)


def test_a_release_of_locked_leases_logs_nothing(stack: ExitStack, caplog: pytest.LogCaptureFixture) -> None:
    partitions(4)
    caplog.set_level("INFO", "django_mqueue")
    group = Group(stack, 1)
    group.settle(4)
    group.join("w01")
    with raw_connection() as other:
        other.execute("SELECT id FROM queue_partition_leases FOR UPDATE")
        for _ in range(3):
            make_due(group.members["w00"])
            group.members["w00"].poll()
        assert "partitions released" not in caplog.text
    group.settle(2, 2)
    assert "partitions released: subscriber w00, group g, topic t, 2 left to others" in caplog.text


def test_partitions_without_work_are_given_up_and_found_again(stack: ExitStack) -> None:
    """Two lease durations after its last message, a partition loses its owner and its row.

    The next message gets a new owner.
    """
    partitions(5)
    group = Group(stack, 2)
    group.settle(3, 2)

    def given_up() -> bool:
        for member in group.members.values():
            for partition in engine_of(member).state.partitions.values():
                partition.idle_since = -math.inf
        return group.round() == [] and not PartitionLease.objects.exists()

    wait_until(given_up, "all are given up")
    partitions(5, "second")
    got = gather(group.round, 5, "they are found again")
    assert {delivery.attempt for delivery in got} == {1}


def two_partitions(first: Subscription) -> list[Delivery]:
    """Let a subscriber claim a message of each of two partitions. Return them, that of the next to leave first."""
    publish("t", 1, key="a")
    publish("t", 2, key="b")
    found = gather(first.poll, 2, "both messages")
    return sorted(found, key=lambda delivery: delivery.status.receipt.partition)


@pytest.mark.usefixtures("quick")
def test_a_drain_counts_a_partition_that_it_has_just_released() -> None:
    """Otherwise it ends although nobody has handled the message, which no worker has leased at this moment."""
    with Subscription("t", "g", name="a") as first:
        leaving, other = two_partitions(first)
        other.ack()
        leaving.postpone(0)
        with Subscription("t", "g", name="b"):
            assert engine_of(first).find_work()
            assert leased_by(leaving.status.receipt.partition) != "a", "it was released"


@pytest.mark.usefixtures("quick")
def test_a_locked_message_of_a_leaving_partition_stays_claimed() -> None:
    """It is put back when the lock is free. Until then the subscriber remembers that it has claimed the message."""
    with Subscription("t", "g", name="a") as first:
        engine = engine_of(first)
        leaving, other = two_partitions(first)
        with Subscription("t", "g", name="b"):
            engine.find_work()
            with raw_connection() as operator:
                operator.execute("SELECT * FROM queue_delivery_state FOR UPDATE")
                assert engine.put_back_leaving([leaving, other]) == set()
                assert set(engine.deliveries()) == {leaving, other}
                operator.rollback()
            assert engine.put_back_leaving([leaving, other]) == {leaving}
            assert engine.deliveries() == [other]
            engine.find_work()
            assert leased_by(leaving.status.receipt.partition) != "a", "it was released"


@pytest.mark.usefixtures("quick")
def test_a_partition_of_which_no_handler_has_a_message_leaves_first() -> None:
    """The other partition would leave first by its name, but a handler has its message."""
    with Subscription("t", "g", name="a") as first:
        running, ahead = two_partitions(first)
        ahead.status.handed = False  # A worker has only claimed it ahead.
        with Subscription("t", "g", name="b"):
            engine_of(first).find_work()
            assert engine_of(first).put_back_leaving([running, ahead]) == {ahead}
