"""Ownership of partitions: fair shares, members that join, leave and die, partitions without an owner.

The scenarios observe ownership from outside. Each round publishes one message for each partition, and the member that
receives it owns the partition. Every message comes once in each round, so no two members own the same partition.
"""

from __future__ import annotations

import pytest

from .doing import Members, nothing_comes, payloads, receive, take_one, until
from .system import System


def test_rebalance_even_distribution(system: System) -> None:
    """One member owns all four partitions. When a second member joins, each owns two."""
    members = Members(system, "t", 1, partitions=4)
    members.settle(4)
    members.join("w1")
    members.settle(2, 2)


def test_rebalance_subscriber_leaves(system: System) -> None:
    """When one of two members leaves, the other owns all four partitions at once, before any lease expires."""
    members = Members(system, "t", 2, partitions=4)
    members.settle(2, 2)
    members.leave("w1")
    members.publish_round()
    members.take_round()
    assert members.shares() == [4]


def test_rebalance_odd_partitions(system: System) -> None:
    """Two members share five partitions as three and two."""
    Members(system, "t", 2, partitions=5).settle(3, 2)


def test_rebalance_no_orphans(system: System) -> None:
    """Three members share six partitions. When one leaves, the other two own three each, and no partition is free."""
    members = Members(system, "t", 3, partitions=6)
    members.settle(2, 2, 2)
    members.leave("w2")
    members.settle(3, 3)


def test_rebalance_more_subscribers_than_partitions(system: System) -> None:
    """Four members share two partitions, so two members have none. When an owner leaves, an idle member takes over."""
    members = Members(system, "t", 4, partitions=2)
    members.settle(1, 1, 0, 0)
    members.publish_round()
    owners = members.take_round()
    members.leave(owners["k00"])
    members.settle(1, 1, 0)


def test_uneven_split_without_starvation(system: System) -> None:
    """Five members share twelve partitions as 3, 3, 2, 2, 2. The shares stay so, and each member has some."""
    members = Members(system, "t", 5, partitions=12)
    members.settle(3, 3, 2, 2, 2)
    for _ in range(5):
        assert members.shares() == [3, 3, 2, 2, 2]


def test_members_that_join_one_by_one(system: System) -> None:
    """Shares are fair each time a member joins, up to four, and each time a member leaves."""
    members = Members(system, "t", 1, partitions=6)
    for n, shares in enumerate([(6,), (3, 3), (2, 2, 2), (2, 2, 1, 1)]):
        if n:
            members.join(f"w{n}")
        members.settle(*shares)
    for n, shares in ((0, (2, 2, 2)), (1, (3, 3)), (2, (6,))):
        members.leave(f"w{n}")
        members.settle(*shares)


def test_lease_steal_from_a_dead_worker(system: System) -> None:
    """One of two members dies without leaving. The other gets its partitions within the lease."""
    members = Members(system, "t", 2, partitions=4)
    members.settle(2, 2)
    members.crash("w0")
    members.publish_round()
    members.take_round()
    assert members.shares() == [4]


def test_orphan_sweep(system: System) -> None:
    """The next member finds partitions whose owners have all gone, even if messages are open."""
    members = Members(system, "t", 2, partitions=6)
    members.settle(3, 3)
    members.publish_round()
    members.leave("w0")
    members.crash("w1")
    members.join("w2")
    owners = members.take_round()
    assert set(owners.values()) == {"w2"}
    members.settle(6)


def test_idle_leases_released_and_resurrected(system: System) -> None:
    """Partitions whose leases expired while they were idle get an owner with their next message."""
    members = Members(system, "t", 2, partitions=4)
    members.settle(2, 2)
    for member in members.everybody:
        member.stall()
    nothing_comes(members.everybody, system.looks)
    members.settle(2, 2)


def test_new_partitions_find_owners(system: System) -> None:
    """Members without partitions share the partitions of the first messages."""
    members = Members(system, "t", 3, partitions=9)
    nothing_comes(members.everybody, system.looks)
    members.settle(3, 3, 3)


def test_a_partition_moves_with_nothing_in_flight(system: System) -> None:
    """A member with messages of a partition in flight keeps the partition until they are settled."""
    first = system.open("t", "g", "one")
    for n in range(4):
        system.publish("t", n, key=f"k{n}")
    held = receive(first, 4)
    second = system.open("t", "g", "two")
    nothing_comes([first, second], system.looks)
    for delivery in held:
        assert delivery.ack()
    got: set[str] = set()

    def both_have_some() -> bool:
        for n in range(4):
            system.publish("t", "more", key=f"k{n}")
        for member in (first, second):
            for delivery in member.poll():
                got.add(member.name)
                delivery.ack()
        return got == {"one", "two"}

    until(both_have_some, "both have partitions")


def test_two_workers_never_the_same_partition(system: System) -> None:
    """Members join, leave and die. No acked message is redelivered, and no message is in flight twice."""
    members = Members(system, "t", 1, partitions=5)
    for step in range(12):
        match step % 4:
            case 1:
                members.join(f"w{step}")
            case 3 if step < 8:
                members.leave(next(iter(members.members)))
            case 3:
                members.crash(next(iter(members.members)))
        members.publish_round()
        members.take_round()
    nothing_comes(members.everybody, system.looks)


def test_a_stalled_member_is_replaced_and_refused(system: System) -> None:
    """A member that stalls for longer than its lease loses its message. It can no longer settle or extend it."""
    stalled = system.open("t", "g", "one")
    system.publish("t", "x", key="a")
    (held,) = receive(stalled)
    stalled.stall()
    other = system.open("t", "g", "two")
    (again,) = receive(other)
    assert payloads([again]) == ["x"]
    for answer in (held.ack, held.nack, held.reject, held.postpone, lambda: held.extend(60)):
        with pytest.raises(system.stale):
            answer()
    assert again.ack()
    nothing_comes([stalled, other], system.looks)


def test_same_name_takes_over_at_once(system: System) -> None:
    """A worker that starts again under its name does not wait for its earlier lease."""
    first = system.open("t", "g", "one")
    system.publish("t", "x", key="a")
    (held,) = receive(first)
    first.crash()
    second = system.open("t", "g", "one")
    assert take_one(second).payload == "x"
    with pytest.raises(system.stale):
        held.ack()
