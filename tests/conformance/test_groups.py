"""Consumer groups: each group gets all messages, and its members share them."""

from __future__ import annotations

from datetime import timedelta

from .doing import Members, nothing_comes, payloads, receive, take, take_one
from .system import System


def test_multiple_consumer_groups(system: System) -> None:
    """Two groups each get all messages, in order."""
    groups = [system.open("t", "one"), system.open("t", "two")]
    for n in range(3):
        system.publish("t", n, key="a")
    for group in groups:
        assert payloads(take(group, 3)) == [0, 1, 2]


def test_multiple_consumer_groups_independent_state(system: System) -> None:
    """One group nacks a message and gets it again. The other group has acked it and does not."""
    alpha, beta = system.open("t", "alpha"), system.open("t", "beta")
    for n in (1, 2):
        system.publish("t", n, key="a")
    first, second = receive(alpha, 2)
    assert first.nack(delay=0.1)
    assert second.ack()
    assert payloads(take(beta, 2)) == [1, 2]
    again = take_one(alpha)
    assert (again.payload, again.attempt) == (1, 2)
    nothing_comes([alpha, beta], system.looks)


def test_multiple_workers_in_consumer_group(system: System) -> None:
    """Two members of a group share the messages of three keys. Each message comes once, to one of them."""
    members = [system.open("t", "g", "one"), system.open("t", "g", "two")]
    nothing_comes(members, system.looks)
    for n in range(10):
        system.publish("t", n, key=f"k{n % 3}")
    assert sorted(payloads(take(members, 10))) == [*range(10)]
    nothing_comes(members, system.looks)


def test_concurrent_subscribers(system: System) -> None:
    """Three members share five keys, in rounds. No message comes twice, and each key stays with its owner."""
    members = Members(system, "t", 3, partitions=5)
    members.settle(2, 2, 1)
    members.publish_round()
    owners = members.take_round()
    for _ in range(5):
        members.publish_round()
        assert members.take_round() == owners
    nothing_comes(members.everybody, system.looks)


def test_groups_are_told_apart_byte_by_byte(system: System) -> None:
    """``Billing`` and ``billing`` are two groups."""
    groups = [system.open("t", "billing"), system.open("t", "Billing")]
    system.publish("t", 1, key="a")
    for group in groups:
        take_one(group)


def test_a_group_keeps_its_place(system: System) -> None:
    """A group that was away continues at its position, with the messages published meanwhile."""
    first = system.open("t", "g")
    system.publish("t", 1, key="a")
    take_one(first)
    first.close()
    system.publish("t", 2, key="a")
    second = system.open("t", "g", start="latest")
    assert take_one(second).payload == 2
    nothing_comes(second, system.looks)


def test_start_latest(system: System) -> None:
    """A group may start with the messages published from now on."""
    system.publish("t", "old", key="a")
    assert system.subscribe("t", "g", "latest")
    assert not system.subscribe("t", "g", "earliest"), "it has its place"
    system.publish("t", "new", key="a")
    subscriber = system.open("t", "g")
    assert take_one(subscriber).payload == "new"
    nothing_comes(subscriber, system.looks)


def test_start_at_an_offset_and_at_a_time(system: System) -> None:
    """A group may start at an offset or at a time."""
    published = [system.publish("t", n, key="a") for n in range(4)]
    by_offset = system.open("t", "by offset", start=published[2].offset)
    assert payloads(take(by_offset, 2)) == [2, 3]
    oldest = take(system.open("t", "everything"), 4)[0].published_at
    early, late = oldest - timedelta(minutes=5), oldest + timedelta(minutes=5)
    assert payloads(take(system.open("t", "from before", start=early), 4)) == [0, 1, 2, 3]
    after = system.open("t", "from later", start=late)
    nothing_comes(after, system.looks)


def test_unsubscribe_forgets_the_place(system: System) -> None:
    """A group that unsubscribes and registers again starts from the beginning."""
    first = system.open("t", "g")
    system.publish("t", 1, key="a")
    take_one(first)
    first.close()
    assert system.unsubscribe("t", "g")
    assert not system.unsubscribe("t", "g")
    again = take_one(system.open("t", "g"))
    assert (again.payload, again.attempt) == (1, 1)
