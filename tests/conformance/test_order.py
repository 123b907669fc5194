"""Order within a key, and independence between keys."""

from __future__ import annotations

from .doing import keys, nothing_comes, payloads, receive, take, take_one, until
from .handling import Notes
from .system import Delivery, Handler, System


def test_message_ordering_within_partition(system: System) -> None:
    """Ten messages of one key come in the order of publishing."""
    subscriber = system.open("t", "g")
    for n in range(10):
        system.publish("t", n, key="a")
    assert payloads(take(subscriber, 10)) == [*range(10)]


def test_subscriber_partition_order_preserved(system: System) -> None:
    """Messages published before the first subscriber come in order, with one poll for each message."""
    for n in range(5):
        system.publish("t", n, key="a")
    subscriber = system.open("t", "g")
    got = []
    for _ in range(5):
        (delivery,) = until(lambda: subscriber.poll(1), "the next message")
        got.append(delivery.payload)
        delivery.ack()
    assert got == [0, 1, 2, 3, 4]


def test_subscriber_per_partition_isolation(system: System) -> None:
    """An open delivery of one key does not stop the messages of the other key."""
    subscriber = system.open("t", "g", batch_size=1)
    for n, key in enumerate("ab"):
        system.publish("t", n, key=key)
        system.publish("t", n + 10, key=key)
    held = receive(subscriber, 2)
    assert sorted(payloads(held)) == [0, 1]
    (b,) = (each for each in held if each.key == "b")
    assert b.ack()
    assert take_one(subscriber).payload == 11, "b goes on while a is held"
    nothing_comes(subscriber, system.looks)


def test_batch_size_one_strict_serialization(system: System) -> None:
    """With ``batch_size=1``, only one message of a key is in flight at a time."""
    subscriber = system.open("t", "g", batch_size=1)
    for n in range(4):
        system.publish("t", n, key="a")
    for n in range(4):
        (delivery,) = receive(subscriber)
        assert delivery.payload == n
        nothing_comes(subscriber, 5)
        assert delivery.ack()
    nothing_comes(subscriber, system.looks)


def test_strict_gives_one_of_each_key(system: System) -> None:
    """Strict: one message of each key is in flight, for any size of a poll. The next one comes after the ack."""
    subscriber = system.open("t", "g", strict=True)
    system.publish_many("t", [1, 1, 2, 2, 3, 3], [*"ababab"])
    for n in (1, 2, 3):
        out: list[Delivery] = []
        while len(out) < 2:
            out += until(subscriber.poll, f"the messages {n}")
        nothing_comes(subscriber, 5)
        assert sorted((each.key, each.payload) for each in out) == [("a", n), ("b", n)]
        assert subscriber.ack(out)
    nothing_comes(subscriber, system.looks)


def test_strict_holds_back_the_key_of_a_failing_message(system: System) -> None:
    """Strict: a failed message is retried before its successors. Only its own key waits for it."""
    subscriber = system.open("t", "g", strict=True)
    for n in range(3):
        system.publish("t", f"a{n}", key="a", id=f"a{n}")
        system.publish("t", f"b{n}", key="b")
    seen: list[str] = []
    while len(seen) < 7:
        for delivery in until(subscriber.poll, f"more than {seen}"):
            seen.append(delivery.payload)
            if delivery.payload == "a0" and delivery.attempt == 1:
                assert delivery.nack(delay=300)
            else:
                assert delivery.ack()
            if delivery.payload == "b2":
                assert system.send_to_front("t", "g", key="a", id="a0") == 1
    assert [name for name in seen if name[0] == "a"] == ["a0", "a0", "a1", "a2"]
    assert [name for name in seen if name[0] == "b"] == ["b0", "b1", "b2"]
    assert seen.index("b2") < seen.index("a1"), "b did not wait"


def test_strict_goes_on_after_a_dead_letter(system: System) -> None:
    """Strict: a message that can never succeed stops its key only until it is dead-lettered."""
    subscriber = system.open("t", "g", strict=True)
    for n in range(3):
        system.publish("t", n, key="a")
    (first,) = receive(subscriber)
    assert first.reject("never")
    assert payloads(take(subscriber, 2)) == [1, 2]


def test_not_strict_lets_a_batch_out_at_once(system: System) -> None:
    """Exactly ``batch_size`` messages of one key are in flight together."""
    subscriber = system.open("t", "g", batch_size=3)
    for n in range(5):
        system.publish("t", n, key="a")
    held = receive(subscriber, 3)
    nothing_comes(subscriber, system.looks)
    assert subscriber.ack(held)
    assert payloads(take(subscriber, 2)) == [3, 4]


def test_consumer_per_partition_isolation(system: System, notes: Notes) -> None:
    """A handler that blocks on one key does not delay the message of the other key."""
    system.publish("t", {"n": 1, "do": "wait", "door": "a"}, key="a")
    worker = system.start_worker(Handler("t", "g", strict=True))
    until(lambda: notes.numbers("start") == [1], "the first blocks")
    system.publish("t", {"n": 2}, key="b")
    until(lambda: 2 in notes.numbers("end"), "the second was handled meanwhile")
    assert 1 not in notes.numbers("end")
    notes.open_door("a")
    worker.ask_to_stop()
    assert worker.wait() == 0
    assert notes.numbers("end") == [2, 1]


def test_consumer_partition_ordering(system: System, notes: Notes) -> None:
    """A strict worker with four threads handles messages of one key one after the other, in order."""
    for n in range(12):
        system.publish("t", {"n": n}, key="a")
    worker = system.start_worker(Handler("t", "g", strict=True))
    until(lambda: len(notes.numbers("end")) == 12, "all were handled")
    expected = [(what, n) for n in range(12) for what in ("start", "end")]
    assert [(note.what, note.n) for note in notes.all()] == expected
    worker.kill()


def test_consumer_multi_partition_throughput(system: System, notes: Notes) -> None:
    """A worker handles messages of several keys at the same time: none ends before all have started."""
    system.publish_many("t", [{"n": n, "do": "wait", "door": "all"} for n in range(3)], keys(3))
    worker = system.start_worker(Handler("t", "g"))
    until(lambda: sorted(notes.numbers("start")) == [0, 1, 2], "all three run together")
    assert notes.numbers("end") == []
    notes.open_door("all")
    until(lambda: sorted(notes.numbers("end")) == [0, 1, 2], "all three have ended")
    worker.kill()


def test_strict_order_while_workers_come_and_go(system: System, notes: Notes) -> None:
    """Strict, with three workers: one leaves and one is killed. Each key's messages are handled in order."""
    handler, count, width = Handler("t", "g", strict=True), 240, 8
    workers = [system.start_worker(handler) for _ in range(3)]
    for n in range(count):
        system.publish("t", {"n": n}, key=f"k{n % width}")
        if n == count // 3:
            workers[0].ask_to_stop()
        if n == 2 * count // 3:
            workers[1].kill()
    until(lambda: set(notes.numbers("end")) == {*range(count)}, "all were handled")
    for k in range(width):
        done: set[int] = set()
        for note in notes.all():
            if note.key == f"k{k}":
                before = {n for n in range(note.n) if n % width == k}
                assert before <= done, f"{note} came before {before - done} had ended"
                done |= {note.n} if note.what == "end" else set()
    assert workers[0].wait() == 0
    workers[2].kill()
