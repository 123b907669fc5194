"""Failed attempts, retries, dead letters."""

from __future__ import annotations

import itertools
import time
from datetime import UTC, datetime, timedelta

import pytest

from .doing import nothing_comes, outlast, payloads, receive, take, take_one, until
from .handling import Notes
from .system import Handler, System


def test_visibility_timeout_and_retry(system: System) -> None:
    """After its visibility timeout, an open delivery is redelivered as another attempt. The late ack is refused."""
    subscriber = system.open("t", "g", visibility_timeout=0.5)
    system.publish("t", "forgotten", key="a")
    asked = time.monotonic()
    (first,) = receive(subscriber)
    (second,) = receive(subscriber)
    assert time.monotonic() - asked > 0.4
    assert (second.payload, second.attempt) == ("forgotten", 2)
    with pytest.raises(system.stale):
        first.ack()
    assert second.ack()


def test_extend_visibility(system: System) -> None:
    """An extended delivery is not redelivered after its first timeout, and can still be acked."""
    subscriber = system.open("t", "g", visibility_timeout=0.5)
    system.publish("t", "long", key="a")
    (delivery,) = receive(subscriber)
    assert delivery.extend(3600)
    outlast(system, "t", "another", 0.5)
    nothing_comes(subscriber, system.looks)
    assert delivery.ack()
    nothing_comes(subscriber, system.looks)


def test_nack_with_delay(system: System) -> None:
    """A nacked message is redelivered after its delay, not before. It has the attempt and the error."""
    subscriber = system.open("t", "g")
    system.publish("t", "x", key="a")
    (first,) = receive(subscriber)
    put_back = time.monotonic()
    assert first.nack(delay=1, error="no connection")
    second = take_one(subscriber)
    assert time.monotonic() - put_back > 0.9
    assert (second.attempt, second.last_error) == (2, "no connection")
    nothing_comes(subscriber, system.looks)


def test_nack_does_not_block_other_messages(system: System) -> None:
    """While one message waits for its retry, later messages of its key are delivered."""
    subscriber = system.open("t", "g", batch_size=2)
    for n in range(1, 6):
        system.publish("t", n, key="a")
    first, second = receive(subscriber, 2)
    assert first.nack(delay=60)
    assert second.ack()
    assert payloads(take(subscriber, 3)) == [3, 4, 5]


def test_postpone_counts_no_attempt(system: System) -> None:
    """A postponed message is redelivered after its delay, any number of times, still as the first attempt."""
    subscriber = system.open("t", "g", max_attempts=2)
    system.publish("t", "x", key="a")
    for _ in range(4):
        (delivery,) = receive(subscriber)
        assert delivery.attempt == 1
        assert delivery.postpone(0.05)
    assert take_one(subscriber).attempt == 1


def test_answers_can_be_repeated(system: System) -> None:
    """A repeated ack succeeds. After an ack, every other method is refused."""
    subscriber = system.open("t", "g")
    system.publish("t", "x", key="a")
    (delivery,) = receive(subscriber)
    assert delivery.ack()
    assert delivery.ack()
    for answer in (delivery.nack, delivery.reject, delivery.postpone, lambda: delivery.extend(1)):
        with pytest.raises(system.stale):
            answer()
    nothing_comes(subscriber, system.looks)


def test_dead_letter_queue(system: System) -> None:
    """After ``max_attempts`` nacks, the message is not redelivered. Its dead letter has the message and the failure."""
    subscriber = system.open("t", "g", max_attempts=2)
    original = system.publish("t", {"poison": 1}, key="a", id="bad", headers={"trace": "abc"}, kind="thing")
    for attempt in (1, 2):
        (delivery,) = receive(subscriber)
        assert delivery.attempt == attempt
        assert delivery.nack(error=f"failure {attempt}")
    nothing_comes(subscriber, system.looks)
    letter = take_one(system.open(system.dead_letters("t"), "undertaker"))
    assert (letter.id, letter.key, letter.payload, letter.headers, letter.kind) == (
        "bad", "a", {"poison": 1}, {"trace": "abc"}, "thing",
    )  # fmt: skip
    assert (letter.original_topic, letter.failed_group, letter.failure_count) == ("t", "g", 2)
    assert "failure 2" in letter.last_error
    assert letter.failed_at is not None
    assert abs(letter.failed_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert letter.offset != original.offset


def test_reject(system: System) -> None:
    """A rejected message is dead-lettered at once, even if attempts are left."""
    subscriber = system.open("t", "g")
    system.publish("t", "x", key="a", id="bad")
    (delivery,) = receive(subscriber)
    assert delivery.reject("no such order")
    nothing_comes(subscriber, system.looks)
    letter = take_one(system.open(system.dead_letters("t"), "undertaker"))
    assert (letter.id, letter.last_error, letter.failure_count) == ("bad", "no such order", 1)


def test_dlq_consumer_group_isolation(system: System) -> None:
    """One group rejects a message. Another group still gets it, and so does a group that registers later."""
    failing, working = system.open("t", "failing"), system.open("t", "working")
    system.publish("t", "x", key="a")
    (delivery,) = receive(failing)
    assert delivery.reject("never")
    got = take_one(working)
    assert (got.payload, got.attempt, got.last_error) == ("x", 1, "")
    assert take_one(system.open("t", "later")).payload == "x"
    letters = system.open(system.dead_letters("t"), "undertaker")
    assert take_one(letters).failed_group == "failing"
    nothing_comes(letters, system.looks)


def test_dlq_of_two_groups(system: System) -> None:
    """Two groups reject the same message. There are two dead letters, and both groups continue."""
    groups = [system.open("t", "one"), system.open("t", "two")]
    system.publish("t", "bad", key="a", id="same")
    for group in groups:
        (delivery,) = receive(group)
        assert delivery.reject("never")
    system.publish("t", "good", key="a")
    for group in groups:
        assert take_one(group).payload == "good"
    letters = take(system.open(system.dead_letters("t"), "undertaker"), 2)
    assert {letter.failed_group for letter in letters} == {"one", "two"}
    assert {letter.id for letter in letters} == {"same"}


def test_tenant_isolation_when_moving_to_dlq(system: System) -> None:
    """Messages with equal keys and ids are in two topics. A reject in one topic does not affect the other."""
    one, two = system.open("tenant-1", "g"), system.open("tenant-2", "g")
    for topic in ("tenant-1", "tenant-2"):
        system.publish(topic, topic, key="shared", id="shared")
    (delivery,) = receive(one)
    assert delivery.reject("never")
    assert take_one(two).payload == "tenant-2"
    assert take_one(system.open(system.dead_letters("tenant-1"), "u")).payload == "tenant-1"
    nothing_comes(system.open(system.dead_letters("tenant-2"), "u"), system.looks)


def test_dead_letters_of_dead_letters(system: System) -> None:
    """A consumer of dead letters can also fail. Its dead letters go to a further dead-letter topic."""
    dead = system.dead_letters("t")
    subscriber = system.open("t", "g", max_attempts=1)
    system.publish("t", "x", key="a", id="bad")
    (delivery,) = receive(subscriber)
    assert delivery.nack(error="first")
    (letter,) = receive(system.open(dead, "undertaker", max_attempts=1))
    assert letter.nack(error="second")
    last = take_one(system.open(system.dead_letters(dead), "undertaker"))
    assert (last.id, last.payload, last.original_topic) == ("bad", "x", dead)
    assert last.failed_group == "undertaker"


def test_handlers_outcomes(system: System, notes: Notes) -> None:
    """A worker retries a failed handler, then dead-letters. A handler can request a retry, reject or postpone."""
    wanted = [
        {"n": 0},
        {"n": 1, "do": "fail", "times": 1},
        {"n": 2, "do": "fail"},
        {"n": 3, "do": "retry", "times": 2, "delay": 0.1},
        {"n": 4, "do": "reject"},
        {"n": 5, "do": "postpone", "times": 4, "delay": 0.05},
    ]
    for payload in wanted:
        system.publish("t", payload, key="a")
    worker = system.start_worker(Handler("t", "g", max_attempts=3))
    letters = {x.payload["n"]: x for x in take(system.open(system.dead_letters("t"), "undertaker"), 2)}
    until(lambda: sorted(notes.numbers("end")) == [0, 1, 3, 5], "the others have succeeded")
    worker.ask_to_stop()
    assert worker.wait() == 0
    attempts = {n: [note.attempt for note in notes.all("start") if note.n == n] for n in range(len(wanted))}
    assert attempts == {0: [1], 1: [1, 2], 2: [1, 2, 3], 3: [1, 2, 3], 4: [1], 5: [1] * 5}
    assert set(letters) == {2, 4}
    assert "number 2 fails, attempt 3" in letters[2].last_error
    assert "never" in letters[4].last_error


def test_visibility_is_extended_while_a_handler_runs(system: System, notes: Notes) -> None:
    """A message is not redelivered while its handler runs longer than the visibility timeout."""
    system.publish("t", {"n": 0, "do": "wait", "door": "long"}, key="b")
    system.publish("t", {"n": 1}, key="a")
    worker = system.start_worker(Handler("t", "g", visibility_timeout=3))
    until(lambda: sorted(notes.numbers("start")) == [0, 1] and notes.numbers("end") == [1], "it runs")
    # Each worker then has one key. The first keeps the busy key, whichever name sorts first.
    other = system.start_worker(Handler("t", "g", visibility_timeout=3))
    further = itertools.count(10)

    def other_works() -> bool:
        n = next(further)
        system.publish("t", {"n": n}, key="a")
        until(lambda: n in notes.numbers("end"), "the idle key's message is handled")
        return other.pid in {note.pid for note in notes.all("end")}

    until(other_works, "the other has the idle key")
    outlast(system, "t", "another", 3)
    system.publish("t", {"n": 2}, key="b")
    until(lambda: 2 in notes.numbers("end"), "a later one is handled")
    assert 0 not in notes.numbers("end")
    notes.open_door("long")
    until(lambda: 0 in notes.numbers("end"), "it has ended")
    for each in (worker, other):
        each.ask_to_stop()
        assert each.wait() == 0
    assert sorted(notes.numbers("start")) == [0, 1, 2, *range(10, next(further))]
