"""Retention and deletion of messages in the log."""

from __future__ import annotations

import threading

from .doing import is_in_log, nothing_comes, payloads, polled_until, receive, take, take_one, until
from .system import System


def test_gc_only_after_all_groups_acked(system: System) -> None:
    """A message leaves the log when both groups have acked it, and not before."""
    with system.retention(0):
        one, two = system.open("t", "one"), system.open("t", "two")
        system.publish("t", "x", key="a", id="x")
        take_one(one)
        nothing_comes(one, system.looks)
        assert is_in_log(system, "t", "x", key="a")
        take_one(two)
        polled_until([one, two], lambda: not is_in_log(system, "t", "x", key="a"), "it leaves the log")


def test_gc_waits_for_a_group_that_is_down(system: System) -> None:
    """A registered group that never ran gets all messages, however long it was away."""
    system.subscribe("t", "down")
    with system.retention(0):
        running = system.open("t", "running")
        for n in range(3):
            system.publish("t", n, key="a")
        take(running, 3)
        nothing_comes(running, system.looks)
        assert payloads(take(system.open("t", "down"), 3)) == [0, 1, 2]


def test_gc_goes_on_when_a_group_unsubscribes(system: System) -> None:
    """A group that blocks deletion no longer blocks it after it unsubscribes."""
    system.subscribe("t", "down")
    with system.retention(0):
        running = system.open("t", "running")
        system.publish("t", "x", key="a", id="x")
        take_one(running)
        nothing_comes(running, system.looks)
        assert is_in_log(system, "t", "x", key="a")
        system.unsubscribe("t", "down")
        polled_until(running, lambda: not is_in_log(system, "t", "x", key="a"), "it leaves the log")


def test_retention_keeps_what_everybody_is_done_with(system: System) -> None:
    """Within the retention, a new group gets messages that the other groups have acked."""
    first = system.open("t", "first")
    for n in range(3):
        system.publish("t", n, key="a")
    take(first, 3)
    nothing_comes(first, system.looks)
    assert payloads(take(system.open("t", "second"), 3)) == [0, 1, 2]


def test_an_id_is_free_again_once_the_message_is_gone(system: System) -> None:
    """After deletion, a message with the same id is new and is delivered."""
    with system.retention(0):
        subscriber = system.open("t", "g")
        first = system.publish("t", 1, key="a", id="same")
        take_one(subscriber)
        polled_until(subscriber, lambda: not is_in_log(system, "t", "same", key="a"), "it leaves the log")
        second = system.publish("t", 2, key="a", id="same")
        assert second.created
        assert second.offset > first.offset
        got = take_one(subscriber)
        assert (got.payload, got.attempt) == (2, 1)


def test_watermark_advances_contiguously(system: System) -> None:
    """Messages are acked out of order. A message stays until all messages below it are acked."""
    with system.retention(0):
        subscriber = system.open("t", "g")
        for n in range(1, 6):
            system.publish("t", n, key="a", id=str(n))
        held = {each.payload: each for each in receive(subscriber, 5)}

        def in_log() -> list[int]:
            return [n for n in range(1, 6) if is_in_log(system, "t", str(n), key="a")]

        for n in (3, 1, 2):
            assert held[n].ack()
        polled_until(subscriber, lambda: in_log() == [4, 5], "1 to 3 leave the log")
        assert held[5].ack()
        nothing_comes(subscriber, system.looks)
        assert in_log() == [4, 5], "5 waits for 4"
        assert held[4].ack()
        polled_until(subscriber, lambda: in_log() == [], "all have left the log")


def test_topic_without_groups_forgets_nothing(system: System) -> None:
    """Messages of a topic without groups wait for the first group."""
    with system.retention(0):
        other = system.open("other", "g")
        system.publish("t", "x", key="a", id="x")
        nothing_comes(other, system.looks)
        assert take_one(system.open("t", "g")).payload == "x"


def test_dead_letters_are_not_deleted(system: System) -> None:
    """A dead letter stays after its group and a consumer of dead letters have acked it."""
    with system.retention(0):
        subscriber = system.open("t", "g")
        system.publish("t", "x", key="a", id="x")
        (delivery,) = receive(subscriber)
        assert delivery.reject("never")
        polled_until(
            subscriber, lambda: not is_in_log(system, "t", "x", key="a"), "the original leaves the log"
        )
        dead = system.dead_letters("t")
        letters = system.open(dead, "undertaker")
        take_one(letters)
        nothing_comes(letters, system.looks)
        assert take_one(system.open(dead, "another")).payload == "x"


def test_gc_while_publishing(system: System) -> None:
    """Under steady load, the log stays short and no published message is lost."""
    with system.retention(0):
        subscriber = system.open("t", "g")
        end, published = threading.Event(), list[int]()

        def publish() -> None:
            try:
                while not end.wait(0.002) and len(published) < 2_000:
                    system.publish("t", len(published), key=f"k{len(published) % 4}", id=str(len(published)))
                    published.append(len(published))
            finally:
                system.close_connections()

        publisher = threading.Thread(target=publish)
        publisher.start()
        got: list[int] = []
        try:

            def first_has_gone() -> bool:
                deliveries = subscriber.poll()
                assert not deliveries or subscriber.ack(deliveries)
                got.extend(payloads(deliveries))
                return len(got) >= 50 and not is_in_log(system, "t", "0", key="k0")

            until(first_has_gone, "the first message leaves the log")
        finally:
            end.set()
            publisher.join()
        got += payloads(take(subscriber, len(published) - len(got))) if len(got) < len(published) else []
        assert sorted(got) == published
