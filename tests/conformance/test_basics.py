"""Publishing and receiving: number, order and content of messages."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from .doing import PATIENCE, ids, is_in_log, keys, nothing_comes, payloads, take, take_one
from .system import System


def test_publish_and_subscribe(system: System) -> None:
    """Messages come in order and unchanged: payload, key, id, headers, kind. Empty headers are a dict."""
    subscriber = system.open("t", "g")
    system.publish(
        "t", {"text": "hello"}, key="a", id="one", kind="greeting", headers={"trace": "abc", "n": 1}
    )
    system.publish("t", b"\x00\xff", key="a", id="two")
    first, second = take(subscriber, 2)
    assert (first.id, first.topic, first.key, first.payload) == ("one", "t", "a", {"text": "hello"})
    assert (first.kind, first.headers, first.group, first.attempt) == (
        "greeting", {"trace": "abc", "n": 1}, "g", 1,
    )  # fmt: skip
    assert (second.id, second.payload, second.headers, second.kind) == ("two", b"\x00\xff", {}, "")
    assert first.offset < second.offset
    assert abs(first.published_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert (first.last_error, first.failed_at, first.original_topic) == ("", None, None)
    nothing_comes(subscriber, system.looks)


def test_multiple_partitions(system: System) -> None:
    """Two messages of each of three keys come to one subscriber, in order for each key."""
    subscriber = system.open("t", "g")
    system.publish_many("t", [1, 1, 1, 2, 2, 2], [*"abcabc"])
    got = take(subscriber, 6)
    for key in "abc":
        assert [each.payload for each in got if each.key == key] == [1, 2]


def test_messages_without_a_key_all_come(system: System) -> None:
    """Messages without a key have no order. None is missing, and none comes twice."""
    subscriber = system.open("t", "g")
    for n in range(40):
        system.publish("t", n)
    got = take(subscriber, 40)
    assert sorted(payloads(got)) == [*range(40)]
    assert {each.key for each in got} == {None}
    assert len({each.id for each in got}) == 40, "each has an id of its own"
    nothing_comes(subscriber, system.looks)


def test_late_subscriber(system: System) -> None:
    """A group that registers after the publishes gets all messages."""
    for n in range(5):
        system.publish("t", n, key="a")
    assert payloads(take(system.open("t", "late"), 5)) == [0, 1, 2, 3, 4]


def test_empty_topic_subscribe(system: System) -> None:
    """A subscriber of an empty topic gets nothing, and then the first published message."""
    subscriber = system.open("t", "g")
    nothing_comes(subscriber, system.looks)
    system.publish("t", "first", key="a")
    assert take_one(subscriber).payload == "first"


def test_idempotent_publish(system: System) -> None:
    """A second publish of an id succeeds and reports that it stored nothing. Only one message comes."""
    subscriber = system.open("t", "g")
    first = system.publish("t", "original", key="a", id="same")
    second = system.publish("t", "repeated", key="a", id="same")
    assert (first.created, second.created) == (True, False)
    assert second.offset == first.offset
    assert take_one(subscriber).payload == "original"
    nothing_comes(subscriber, system.looks)


def test_idempotent_publish_of_two_at_once(system: System) -> None:
    """Several publishers use one id at the same moment. Exactly one of them stores the message."""
    start, created = threading.Barrier(4), list[bool]()

    def publish() -> None:
        try:
            start.wait(PATIENCE)
            created.append(system.publish("t", "x", key="a", id="same").created)
        finally:
            system.close_connections()

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(created) == [False, False, False, True]
    take_one(system.open("t", "g"))


def test_dedupe_outlives_consumption(system: System) -> None:
    """The id of an acknowledged message is known as long as the log keeps the message."""
    subscriber = system.open("t", "g")
    system.publish("t", 1, key="a", id="same")
    take_one(subscriber)
    nothing_comes(subscriber, system.looks)
    assert is_in_log(system, "t", "same", key="a")
    assert not system.publish("t", 2, key="a", id="same").created
    nothing_comes(subscriber, system.looks)


def test_tenant_isolation_with_equal_message_identities(system: System) -> None:
    """Equal keys and ids in two topics are two messages. So are equal ids of two keys. (A tenant is a topic here.)"""
    one, two = system.open("tenant-1", "g"), system.open("tenant-2", "g")
    assert system.publish("tenant-1", 1, key="共享", id="共享").created
    assert system.publish("tenant-2", 2, key="共享", id="共享").created
    assert system.publish("tenant-2", 3, key="other", id="共享").created
    assert payloads(take(one, 1)) == [1]
    assert sorted(payloads(take(two, 2))) == [2, 3]


def test_keys_and_ids_are_told_apart_byte_by_byte(system: System) -> None:
    """Case, accents and trailing punctuation make different keys and ids."""
    subscriber = system.open("t", "g")
    names = ["order-1", "Order-1", "ördér-1", "order-1.", "straße", "strasse"]
    for name in names:
        assert system.publish("t", name, key="a", id=name).created, name
        assert system.publish("t", name, key=name, id="same").created, name
    got = take(subscriber, 12)
    assert sorted(each.id for each in got if each.key == "a") == sorted(names)
    assert sorted(str(each.key) for each in got if each.id == "same") == sorted(names)


def test_concurrent_publishers(system: System) -> None:
    """Five threads publish to one key at once. Every message comes once, and each thread's messages in order."""
    start, failures = threading.Barrier(5), list[BaseException]()

    def publish(who: int) -> None:
        try:
            start.wait(PATIENCE)
            for n in range(6):
                system.publish("t", [who, n], key="shared", id=f"{who}-{n}")
        except BaseException as error:
            failures.append(error)
        finally:
            system.close_connections()

    threads = [threading.Thread(target=publish, args=(who,)) for who in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    got = payloads(take(system.open("t", "g"), 30))
    for who in range(5):
        assert [n for whose, n in got if whose == who] == [*range(6)]


def test_publish_many_is_all_or_nothing(system: System) -> None:
    """One payload that cannot be stored makes the whole batch fail."""
    subscriber = system.open("t", "g")
    try:
        system.publish_many("t", [1, 2, object()], keys(3))
    except (TypeError, ValueError):
        pass
    else:
        raise AssertionError("an object that is no JSON was taken")
    system.publish_many("t", [3, 4], keys(2))
    assert sorted(payloads(take(subscriber, 2))) == [3, 4]


def test_poll_gives_no_more_than_asked_for(system: System) -> None:
    """A poll returns at most ``max_messages``. The next polls return the rest."""
    subscriber = system.open("t", "g")
    for n in range(10):
        system.publish("t", n, key="a", id=str(n))
    got: list[str] = []
    while len(got) < 10:
        some = subscriber.poll(3)
        assert len(some) <= 3
        got += ids(some)
        assert not some or subscriber.ack(some)
    assert got == [str(n) for n in range(10)]
