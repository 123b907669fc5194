"""``BatchFailure`` fails the named messages of a batch, each with its own exception. The others are acked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from django_mqueue import BatchFailure, Delivery, Postpone, Reject, Retry, RetryOn, publish
from tests.support.running import Seen, registered, run

from .batches import AT_ONCE, LATER, Batches, errors, letters, publish_all, states

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


def test_each_by_its_own_exception() -> None:
    publish_all("t", range(7))

    def handle(messages: list[Delivery]) -> None:
        raise BatchFailure(
            {
                messages[1]: ValueError("one"),
                messages[2]: Reject("two"),
                messages[3]: Postpone(600),
                messages[4]: Retry("four", delay=600),
                messages[5]: KeyError("five"),
            }
        )

    with registered("t", Batches(handle), batch=True, retry=RetryOn(ValueError, policy=LATER)):
        output = run()
    assert "stopped: ack 2, dead-letter 2, nack 2, postpone 1" in output
    done, failed, dead = (True, 0, 0), (False, 1, 0), (True, 1, 0)
    assert states() == [done, failed, dead, (False, 0, 0), failed, dead, done]
    assert letters("t") == {b"2": "two", b"5": "KeyError: 'five'"}
    assert errors() == ["ValueError: one", "two", "four", "KeyError: 'five'"]


def test_only_the_failed_ones_come_again() -> None:
    publish_all("t", range(5))

    def handle(messages: list[Delivery]) -> None:
        bad = {m: ValueError(m.payload) for m in messages if m.payload % 2 and m.attempt < 3}
        if bad:
            raise BatchFailure(bad)

    with registered("t", seen := Batches(handle), batch=True, retry=AT_ONCE):
        run()
    assert seen.payloads == [[0, 1, 2, 3, 4], [1, 3], [1, 3]]
    assert [seen.attempts(n) for n in range(5)] == [[1], [1, 2, 3], [1], [1, 2, 3], [1]]
    assert states() == [(True, 0, 0), (True, 2, 2), (True, 0, 0), (True, 2, 2), (True, 0, 0)]


def test_past_its_attempts_a_named_one_is_dead_lettered() -> None:
    publish_all("t", range(3))

    def handle(messages: list[Delivery]) -> None:
        if bad := {m: ValueError("bad") for m in messages if m.payload == 1}:
            raise BatchFailure(bad)

    with registered("t", seen := Batches(handle), batch=True, retry=AT_ONCE, max_attempts=2):
        run()
    assert seen.payloads == [[0, 1, 2], [1]]
    assert letters("t") == {b"1": "ValueError: bad"}


@dataclass
class Order:
    n: int


def test_messages_with_parsed_payloads_can_be_named() -> None:
    for n in range(3):
        publish("t", {"n": n}, key="k", kind="order")

    def handle(messages: list[Any]) -> None:
        if len(messages) > 1:
            raise BatchFailure({m: ValueError("no") for m in messages if m.payload == Order(1)})

    with registered("t", seen := Batches(handle), batch=True, kinds={"order": Order}, retry=AT_ONCE):
        run()
    assert seen.payloads == [[Order(0), Order(1), Order(2)], [Order(1)]]


def test_a_message_that_is_not_of_the_batch() -> None:
    """A failure for a message of another batch has no clear meaning. The whole batch fails, and the errors say why."""
    publish_all("t", [0], key="a")
    publish_all("t", [1, 2], key="b")
    kept: list[Delivery] = []

    def handle(messages: list[Delivery]) -> None:
        if messages[0].key == "b":
            raise BatchFailure({messages[0]: ValueError("no"), kept[0]: ValueError("a stranger")})
        kept.extend(messages)

    with registered("t", Batches(handle), batch=True, retry=LATER):
        run(threads=1)
    assert states() == [(True, 0, 0), (False, 1, 0), (False, 1, 0)]
    assert len(errors()) == 2
    assert all(
        e.startswith("ValueError: BatchFailure names ") and "which is not a message of this batch" in e
        for e in errors()
    )


@pytest.mark.parametrize(
    "key", [lambda m: m.offset, lambda m: m.id, lambda m: 0], ids=["offset", "id", "place"]
)
def test_keys_that_are_no_messages(key: Callable[[Delivery], object]) -> None:
    publish_all("t", [0, 1])

    def handle(messages: list[Delivery]) -> None:
        raise BatchFailure({key(messages[0]): ValueError("no")})

    with registered("t", Batches(handle), batch=True, retry=LATER):
        run()
    assert states() == [(False, 1, 0)] * 2
    assert "not a message of this batch" in errors()[0]


@pytest.mark.parametrize(
    ("failures", "error", "says"),
    [
        ({}, ValueError, "at least one message; return if all of them succeeded"),
        ([1], TypeError, "a mapping from messages to exceptions, not list"),
        ({1: "bad"}, TypeError, "an exception for each message, not 'bad'"),
        ({1: ValueError}, TypeError, "an exception for each message"),
    ],
)
def test_what_is_no_failure(failures: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        BatchFailure(failures)


def test_its_own_text() -> None:
    failure = BatchFailure({1: ValueError("bad"), 2: KeyError("x")})
    assert str(failure) == "2 of the batch failed, the first by ValueError: bad"
    assert set(failure.failures) == {1, 2}


def test_an_empty_one_fails_the_batch() -> None:
    publish_all("t", [0, 1])

    def handle(messages: list[Delivery]) -> None:
        raise BatchFailure({})

    with registered("t", Batches(handle), batch=True, retry=LATER):
        run()
    assert states() == [(False, 1, 0)] * 2
    assert errors()[0].startswith("ValueError: BatchFailure must name at least one message")


def test_from_a_handler_of_single_messages_it_is_an_error_like_any_other() -> None:
    publish_all("t", [0])

    def handle(message: Any) -> None:
        raise BatchFailure({message: Postpone(5)})

    with registered("t", Seen(handle), retry=LATER):
        run()
    assert states() == [(False, 1, 0)]
    assert errors()[0].startswith("django_mqueue.exceptions.BatchFailure: 1 of the batch failed")
