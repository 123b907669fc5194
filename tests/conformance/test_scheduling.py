"""Scheduled messages: listed, cancelled, rescheduled."""

from __future__ import annotations

import time
from itertools import pairwise

from .doing import nothing_comes, payloads, rolled_back, take, take_one
from .system import System

HOUR = 3600


def scheduled(system: System, topic: str = "t") -> list[str]:
    return [message.id for message in system.scheduled(topic)]


def test_a_scheduled_message_comes_when_it_is_due(system: System) -> None:
    """Each group gets the message when it is due, not before. Later messages of its key do not wait for it."""
    one, two = system.open("t", "one"), system.open("t", "two")
    begun = time.monotonic()
    system.publish("t", "later", key="a", delay=0.5)
    system.publish("t", "now", key="a")
    for member in (one, two):
        assert payloads(take(member, 2)) == ["now", "later"]
        assert time.monotonic() - begun > 0.45
    nothing_comes([one, two], system.looks)


def test_scheduled_messages_are_listed_until_they_are_due(system: System) -> None:
    """The list is sorted by due time and contains the published data."""
    subscriber = system.open("t", "g")
    for id, delay in (("c", 3 * HOUR), ("a", HOUR), ("b", 2 * HOUR)):
        system.publish("t", {"id": id}, key="k", id=id, delay=delay)
    system.publish("other", 1, id="z", delay=HOUR)
    found = system.scheduled("t")
    assert [(m.id, m.key, m.payload) for m in found] == [(id, "k", {"id": id}) for id in "abc"]
    for earlier, later in pairwise(found):
        assert abs((later.at - earlier.at).total_seconds() - HOUR) < HOUR / 2
    nothing_comes(subscriber, system.looks)


def test_cancel(system: System) -> None:
    """A cancelled message never comes, and its id is free. A cancel that is rolled back has no effect."""
    subscriber = system.open("t", "g")
    for id in ("x", "y"):
        system.publish("t", id, key="a", id=id, delay=HOUR)
    with rolled_back(system):
        assert system.cancel("t", "x", key="a")
    assert scheduled(system) == ["x", "y"]
    assert system.cancel("t", "x", key="a")
    assert not system.cancel("t", "x", key="a")
    assert not system.cancel("t", "y", key="b")
    assert scheduled(system) == ["y"]
    assert system.publish("t", "now", key="a", id="x").created
    assert not system.cancel("t", "x", key="a"), "a message in the log is not scheduled"
    assert take_one(subscriber).payload == "now"
    nothing_comes(subscriber, system.looks)


def test_reschedule(system: System) -> None:
    """The message moves to a later time, and then to now. After that, it is no longer scheduled."""
    subscriber = system.open("t", "g")
    for id, delay in (("x", HOUR), ("y", 2 * HOUR)):
        system.publish("t", id, key="a", id=id, delay=delay)
    assert system.reschedule("t", "x", key="a", delay=3 * HOUR)
    assert scheduled(system) == ["y", "x"]
    nothing_comes(subscriber, system.looks)
    assert system.reschedule("t", "x", key="a", delay=0)
    assert take_one(subscriber).id == "x"
    assert not system.reschedule("t", "x", key="a", delay=0)
    assert scheduled(system) == ["y"]
    nothing_comes(subscriber, system.looks)
