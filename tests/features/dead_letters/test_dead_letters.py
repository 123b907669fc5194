"""Dead letters: ``<topic>_dlq`` gets each message that a group gives up, with the reason.

Other groups are not affected.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction
from django.test import override_settings

from django_mqueue import (
    Delivery,
    OutgoingMessage,
    StaleDelivery,
    Subscription,
    publish,
    publish_many,
    subscribe,
)
from django_mqueue.models import DeliveryState
from django_mqueue.store.dead_letters import copy
from tests.support.fixtures import with_settings
from tests.support.subscribers import (
    QUICK,
    consume,
    consume_rest,
    in_log,
    poll_until,
    settle_and_collect,
    watermark,
)

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, DEAD = "orders", "orders_dlq"


quick = with_settings(MQUEUE=QUICK)


def fail(subscription: Subscription, error: str, attempts: int = 3) -> Delivery:
    """Nack the topic's only message until it is dead-lettered, and return its last delivery."""
    for attempt in range(1, attempts + 1):
        (delivery,) = poll_until(subscription, 1)
        assert delivery.attempt == attempt
        delivery.nack(error=f"{error} {attempt}")
    return delivery


def dead_letters(group: str = "watchers", topic: str = DEAD) -> list[Delivery]:
    """Consume the dead-letter topic with a group, and return its acked deliveries."""
    with Subscription(topic, group=group, batch_size=1000) as subscription:
        return consume(subscription, len(in_log(topic)))


def test_a_message_out_of_attempts_is_dead_lettered_with_its_five_fields() -> None:
    """Payload, key, kind, headers and id are the original's.

    The letter also has the last error and the failure count.
    """
    before = datetime.now(UTC) - timedelta(minutes=1)
    original = publish(TOPIC, {"order": 1}, key="customer-1", id="mine", kind="created", headers={"a": "b"})
    with Subscription(TOPIC, group="billing") as subscription:
        fail(subscription, "boom")
        assert consume_rest(subscription) == []
    (letter,) = dead_letters()
    assert (letter.payload, letter.key, letter.kind, letter.headers) == (
        {"order": 1},
        "customer-1",
        "created",
        {"a": "b"},
    )
    assert (letter.topic, letter.group, letter.attempt) == (DEAD, "watchers", 1)
    assert letter.id == "mine"
    assert letter.offset > original.offset
    assert letter.failed_at is not None
    assert letter.failed_at.tzinfo is UTC
    assert before < letter.failed_at < before + timedelta(minutes=5)
    assert letter.failure_count == 3
    assert letter.last_error == "boom 3"
    assert letter.original_topic == TOPIC
    assert letter.failed_group == "billing"


def test_redeliveries_carry_the_last_error_and_the_attempt() -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, group="billing", max_attempts=4) as subscription:
        for attempt, last_error in enumerate(["", "one", "two", "three"], start=1):
            (delivery,) = poll_until(subscription, 1)
            assert (delivery.attempt, delivery.last_error) == (attempt, last_error)
            delivery.nack(error=["one", "two", "three", "four"][attempt - 1])
    (letter,) = dead_letters()
    assert (letter.last_error, letter.failure_count) == ("four", 4)


def test_reject_dead_letters_at_once() -> None:
    """``reject`` works at any attempt, and the letter has its reason."""
    publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(2)])
    with Subscription(TOPIC, group="billing", max_attempts=5) as subscription:
        first, second = poll_until(subscription, 2)
        assert first.reject("never")
        second.nack(error="once")
        (again,) = poll_until(subscription, 1)
        assert again.reject("not again")
        assert consume_rest(subscription) == []
    assert [(d.last_error, d.failure_count) for d in dead_letters()] == [("never", 1), ("not again", 2)]


def test_a_single_attempt_is_enough_where_max_attempts_is_one() -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, group="billing", max_attempts=1) as subscription:
        fail(subscription, "boom", attempts=1)
    assert [d.failure_count for d in dead_letters()] == [1]


def test_postpone_uses_up_no_attempt() -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, group="billing", max_attempts=2) as subscription:
        for _ in range(4):
            (delivery,) = poll_until(subscription, 1)
            assert delivery.attempt == 1
            delivery.postpone()
        fail(subscription, "boom", attempts=2)
    assert [d.failure_count for d in dead_letters()] == [2]


def test_two_groups_that_fail_one_message_make_two_dead_letters() -> None:
    """Each letter has the error of its own group. The third group and the other messages are not affected."""
    for group in ("billing", "board", "calm"):
        subscribe(TOPIC, group)
    poison = publish(TOPIC, "poison", key="k", id="mine")
    good = publish(TOPIC, "good", key="k")
    for group, error in (("billing", "no money"), ("board", "no paint")):
        with Subscription(TOPIC, group=group) as subscription:
            bad, fine = poll_until(subscription, 2)
            assert (bad.payload, fine.payload) == ("poison", "good")
            assert bad.reject(error)
            assert fine.ack()
            settle_and_collect(subscription)
            assert watermark(TOPIC, group, "k") >= good.offset
        assert in_log(TOPIC) == [poison.offset, good.offset]
    with Subscription(TOPIC, group="calm") as subscription:
        got = consume(subscription, 2)
        assert [(d.payload, d.attempt, d.last_error) for d in got] == [("poison", 1, ""), ("good", 1, "")]
        settle_and_collect(subscription)
    assert in_log(TOPIC) == []
    letters = dead_letters()
    assert [(d.failed_group, d.last_error, d.id) for d in letters] == [
        ("billing", "no money", "mine"),
        ("board", "no paint", "mine"),
    ]


def test_a_second_dead_letter_of_a_message_replaces_the_first_one() -> None:
    """It happens after a lost COMMIT, and if the message fails again after a reset."""
    offset = publish(TOPIC, 1, key="k").offset
    for count in (3, 4):
        with transaction.atomic(), transaction.get_connection().cursor() as cursor:
            copy(cursor, offset, "billing", DEAD, count, f"error {count}")
    assert [(d.failure_count, d.last_error) for d in dead_letters()] == [(4, "error 4")]


def test_an_answer_repeated_is_true_and_makes_one_letter() -> None:
    """Repeating ``reject`` on the same delivery object returns True. Any other settlement of it is refused."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, group="billing") as subscription:
        (delivery,) = poll_until(subscription, 1)
        assert delivery.reject("no")
        assert delivery.reject("no")
        for answer in (delivery.ack, delivery.nack, delivery.postpone):
            with pytest.raises(StaleDelivery):
                answer()
    assert len(in_log(DEAD)) == 1


def test_an_id_used_again_loses_no_letter() -> None:
    """The first message has left the log when its id is published again and fails again.

    There are two letters with one id.
    """
    for number in range(2):
        with Subscription(TOPIC, group="billing") as subscription:
            assert publish(TOPIC, number, key="k", id="mine").created
            poll_until(subscription, 1)[0].reject(f"no {number}")
            settle_and_collect(subscription)
        assert in_log(TOPIC) == []
    assert [(d.id, d.payload, d.last_error) for d in dead_letters()] == [
        ("mine", 0, "no 0"),
        ("mine", 1, "no 1"),
    ]


def test_a_dead_letter_is_one_transaction_with_being_done() -> None:
    """A rollback of the caller's transaction undoes both, and the delivery is still open."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, group="billing") as subscription:
        (delivery,) = poll_until(subscription, 1)
        with transaction.atomic():
            assert delivery.reject("no")
            transaction.set_rollback(True)
        assert in_log(DEAD) == []
        assert not DeliveryState.objects.get().acked
        assert delivery.ack()
    assert in_log(DEAD) == []


def test_dead_letters_are_consumed_like_any_other_topic() -> None:
    """Several groups can consume dead letters, with retries. Their own dead letters name the dead-letter topic."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, group="billing") as subscription:
        poll_until(subscription, 1)[0].reject("first")
    assert len(dead_letters("one")) == len(dead_letters("two")) == 1
    with Subscription(DEAD, group="three", max_attempts=2) as subscription:
        (letter,) = poll_until(subscription, 1)
        letter.nack(error="second")
        (letter,) = poll_until(subscription, 1)
        assert letter.attempt == 2
        assert (letter.failure_count, letter.original_topic) == (1, TOPIC)
        letter.nack(error="third")
    (again,) = dead_letters(topic=f"{DEAD}_dlq")
    assert (again.original_topic, again.failed_group, again.last_error) == (DEAD, "three", "third")
    assert again.failure_count == 2


def test_dead_letters_keep_the_order_of_their_key() -> None:
    """Letters of one key form one partition again. Keyless letters stay keyless."""
    publish_many(TOPIC, [OutgoingMessage(n, key="k" if n % 2 else None) for n in range(20)])
    with Subscription(TOPIC, group="billing") as subscription:
        for delivery in sorted(poll_until(subscription, 20), key=lambda d: d.offset):
            delivery.reject("no")
    with Subscription(DEAD, group="watchers", strict=True) as subscription:
        got = consume(subscription, 20)
    assert [d.payload for d in got if d.key == "k"] == list(range(1, 20, 2))
    assert sorted(d.payload for d in got if d.key is None) == list(range(0, 20, 2))


@override_settings(MQUEUE={**QUICK, "DLQ_SUFFIX": ".dead", "TOPICS": {"payments": {"DLQ_SUFFIX": ".failed"}}})
def test_the_ending_is_the_settings() -> None:
    """A topic may override the suffix. Letters with such a suffix are also kept after they are consumed."""
    for topic, expected in ((TOPIC, "orders.dead"), ("payments", "payments.failed")):
        publish(topic, 1, key="k")
        with Subscription(topic, group="billing") as subscription:
            poll_until(subscription, 1)[0].reject("no")
            settle_and_collect(subscription)
        assert in_log(topic) == []
        with Subscription(expected, group="watchers") as subscription:
            consume(subscription, 1)
            settle_and_collect(subscription)
        assert len(in_log(expected)) == 1


def test_a_large_message_is_dead_lettered_whole() -> None:
    payload = bytes(range(256)) * 4096
    publish(TOPIC, payload, key="k")
    with Subscription(TOPIC, group="billing") as subscription:
        poll_until(subscription, 1)[0].reject("no")
    assert [d.payload for d in dead_letters()] == [payload]
