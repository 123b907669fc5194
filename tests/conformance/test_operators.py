"""Operations on leases and single messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from .doing import nothing_comes, payloads, receive, take, take_one
from .system import System


@pytest.mark.parametrize("which", [{"subscriber": "one"}, {"partition": "a"}])
def test_release(system: System, which: dict[str, str]) -> None:
    """The holder's delivery is stale at once. The next holder gets the message as a further attempt."""
    with pytest.raises(system.unknown):
        system.release("t", "unknown", **which)
    first = system.open("t", "g", "one")
    system.publish("t", "x", key="a")
    (delivery,) = receive(first)
    assert system.release("t", "g", subscriber="two") == 0
    assert system.release("t", "g", **which) == 1
    assert system.release("t", "g", **which) == 0
    for answer in (delivery.ack, delivery.nack, delivery.reject):
        with pytest.raises(system.stale):
            answer()
    got = take_one(system.open("t", "g", "two"))
    assert (got.payload, got.attempt) == ("x", 2)


def test_remove(system: System) -> None:
    """The group skips the key's open messages, but not the one in flight. The other group gets all of them."""
    one, two = system.open("t", "one"), system.open("t", "two")
    system.publish("t", "waits for a retry", key="a")
    assert receive(one)[0].nack(delay=3600)
    system.publish("t", "in flight", key="a")
    (held,) = receive(one)
    system.publish("t", "pending", key="a")
    assert system.remove("t", "one", key="a") == 2
    assert system.remove("t", "one", key="a") == 0
    assert held.ack()
    system.publish("t", "next", key="a")
    assert take_one(one).payload == "next"
    assert payloads(take(two, 4)) == ["waits for a retry", "in flight", "pending", "next"]
    nothing_comes([one, two], system.looks)


def test_send_to_front(system: System) -> None:
    """A message that waits an hour for its retry is delivered at once. Attempts are still counted."""
    subscriber = system.open("t", "g")
    for id in ("x", "y"):
        system.publish("t", id, key="a", id=id)
        assert receive(subscriber)[0].nack(delay=3600)
    nothing_comes(subscriber, system.looks)
    assert system.send_to_front("t", "g", key="a", id="y") == 1
    got = take_one(subscriber)
    assert (got.id, got.attempt) == ("y", 2)
    nothing_comes(subscriber, system.looks)
    assert system.send_to_front("t", "g", key="a", id="y") == 0


def test_hold_and_unhold(system: System) -> None:
    """The group does not get a held message before it is released. Other messages and groups are not affected."""
    one, two = system.open("t", "one"), system.open("t", "two")
    for id in ("x", "y"):
        system.publish("t", id, key="a", id=id)
    assert system.hold("t", "one", id="x") == 1
    assert payloads(take(one, 1)) == ["y"]
    nothing_comes(one, system.looks)
    assert payloads(take(two, 2)) == ["x", "y"]
    assert system.hold("t", "one", id="y") == 0
    assert system.unhold("t", "one", id="x") == 1
    got = take_one(one)
    assert (got.payload, got.attempt) == ("x", 1)
    assert system.unhold("t", "one", id="x") == 0


def test_delay(system: System) -> None:
    """A delayed message is delivered when its time has come."""
    subscriber = system.open("t", "g")
    system.publish("t", "x", key="a", id="x")
    assert system.delay("t", "g", datetime.now(UTC) + timedelta(hours=1), id="x") == 1
    nothing_comes(subscriber, system.looks)
    assert system.delay("t", "g", datetime.now(UTC), id="x") == 1
    assert take_one(subscriber).payload == "x"


def test_redeliver(system: System) -> None:
    """A message that is done is delivered again to this group, as a first attempt."""
    one, two = system.open("t", "one"), system.open("t", "two")
    system.publish("t", "x", key="a", id="x")
    assert system.redeliver("t", "one", id="x") == 0
    take(one, 1)
    take(two, 1)
    assert system.redeliver("t", "one", id="x") == 1
    got = take_one(one)
    assert (got.payload, got.id, got.key, got.attempt) == ("x", "x", "a", 1)
    nothing_comes([one, two], system.looks)


def test_erase(system: System) -> None:
    """No group gets an erased message, in whatever state it is. A handler that has it cannot settle it."""
    one, two = system.open("t", "one"), system.open("t", "two")
    system.publish("t", "dead", key="ann")
    assert receive(one)[0].reject("never")
    system.publish("t", "in flight", key="ann")
    (held,) = receive(one)
    system.publish("t", "pending", key="ann")
    system.publish("t", "other", key="bob")
    assert system.erase(key="ann") == 4, "three messages and a dead letter"
    with pytest.raises(system.stale):
        held.ack()
    assert payloads(take(one, 1)) == ["other"]
    assert payloads(take(two, 1)) == ["other"]
    nothing_comes([one, two], system.looks)
    assert system.erase(key="ann") == 0
