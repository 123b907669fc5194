"""Strict order: one message of a key at a time, also after failures. No key waits for another key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import override_settings

from django_mqueue import Delivery, StaleDelivery, Subscription, publish
from django_mqueue.inspect import send_to_front
from django_mqueue.models import DeliveryState
from tests.support.fixtures import with_settings
from tests.support.processes import gather, wait_until
from tests.support.subscribers import consume_rest, engine_of, let_die

pytestmark = pytest.mark.django_db(transaction=True)


quick = with_settings(MQUEUE={"DISCOVERY_INTERVAL": 0.02})


@pytest.fixture
def subscription() -> Iterator[Subscription]:
    for n in range(3):
        for key in ("bad", "good"):
            publish("t", n, key=key)
    with Subscription("t", "g", strict=True, max_attempts=2) as subscription:
        yield subscription


def heads(subscription: Subscription) -> tuple[Delivery, Delivery]:
    """Return the first message of each key. No other message is delivered."""
    got = gather(subscription.poll, 2, "both heads")
    assert subscription.poll() == []
    bad, good = sorted(got, key=lambda delivery: str(delivery.key))
    assert (bad.key, bad.payload, good.key, good.payload) == ("bad", 0, "good", 0)
    return bad, good


def finish(subscription: Subscription, key: str, first: int) -> None:
    """Acknowledge the rest of a key: the messages come in order, one at a time."""
    for n in range(first, 3):
        (delivery,) = wait_until(subscription.poll, f"{key} {n}")
        assert (delivery.key, delivery.payload) == (key, n)
        assert subscription.poll() == []
        delivery.ack()


def test_the_next_of_a_key_comes_when_the_one_before_is_acked(subscription: Subscription) -> None:
    bad, good = heads(subscription)
    good.ack()
    finish(subscription, "good", 1)
    bad.ack()
    finish(subscription, "bad", 1)


@pytest.mark.parametrize("put_back", ["nack", "postpone"])
def test_a_message_put_back_holds_back_its_key_and_no_other(
    put_back: str, subscription: Subscription
) -> None:
    """While the message waits, no message of its key is delivered, but the other key continues. Then it comes first."""
    bad, good = heads(subscription)
    getattr(bad, put_back)(delay=600)
    good.ack()
    finish(subscription, "good", 1)
    assert subscription.poll() == []
    assert send_to_front("t", group="g", id=bad.id) == 1
    (again,) = wait_until(subscription.poll, "it is due")
    assert (again.payload, again.attempt) == (0, 2 if put_back == "nack" else 1)
    assert subscription.poll() == []
    again.ack()
    finish(subscription, "bad", 1)


def test_a_dead_letter_lets_its_key_go_on(subscription: Subscription) -> None:
    bad, good = heads(subscription)
    good.ack()
    finish(subscription, "good", 1)
    bad.nack()
    (again,) = wait_until(subscription.poll, "the second attempt")
    again.nack()
    finish(subscription, "bad", 1)


def test_a_rejected_message_lets_its_key_go_on(subscription: Subscription) -> None:
    bad, good = heads(subscription)
    good.ack()
    finish(subscription, "good", 1)
    bad.reject("never")
    finish(subscription, "bad", 1)


def test_what_is_put_back_waits_for_its_turn_with_a_new_owner_too() -> None:
    """The order is in the database: a new owner finds the message that holds back the key."""
    for n in range(3):
        publish("t", n, key="bad")
    with Subscription("t", "g", strict=True) as first:
        (head,) = wait_until(first.poll, "the head")
        head.nack(delay=3600)
    with Subscription("t", "g", strict=True) as second:
        assert consume_rest(second) == []
    DeliveryState.objects.update(invisible_until=0)
    with Subscription("t", "g", strict=True) as third:
        (again,) = wait_until(third.poll, "it is due")
        assert (again.payload, again.attempt) == (0, 2)


def test_a_retry_comes_when_it_is_due_although_a_later_message_was_sent_to_the_front() -> None:
    """The later message is due at once, and waits for the first message of its key."""
    for n in range(2):
        publish("t", n, key="k", id=str(n))
    with Subscription("t", "g", strict=True) as subscription:
        (first,) = wait_until(subscription.poll, "the first message")
        first.nack(delay=1)
        assert send_to_front("t", group="g", id="1") == 1
        for n, attempt in ((0, 2), (1, 1)):
            (delivery,) = wait_until(subscription.poll, "the next message in its order")
            assert (delivery.payload, delivery.attempt) == (n, attempt)
            delivery.ack()


def test_what_a_dead_owner_left_unanswered_comes_first() -> None:
    """The later messages wait, although they are new and were never delivered."""
    with override_settings(MQUEUE={"DISCOVERY_INTERVAL": 0.02, "LEASE_DURATION": 60}):
        for n in range(3):
            publish("t", n, key="k")
        dead = Subscription("t", "g", strict=True, name="dead").open()
        assert [d.payload for d in wait_until(dead.poll, "the dead one's")] == [0]
        let_die("dead")
        with Subscription("t", "g", strict=True, name="heir") as heir:
            for n, attempt in ((0, 2), (1, 1), (2, 1)):
                (delivery,) = wait_until(heir.poll, "the heir's")
                assert (delivery.payload, delivery.attempt) == (n, attempt)
                assert heir.poll() == []
                delivery.ack()


def test_keyless_messages_of_a_strict_handler_are_one_at_a_time_in_each_partition() -> None:
    with override_settings(MQUEUE={"SPREAD": 1, "DISCOVERY_INTERVAL": 0.02}):
        for n in range(3):
            publish("t", n)
        with Subscription("t", "g", strict=True) as subscription:
            for n in range(3):
                (delivery,) = wait_until(subscription.poll, "the next")
                assert delivery.payload == n
                delivery.ack()


@pytest.mark.parametrize("put_back", ["nack", "postpone"])
def test_a_late_ack_of_a_message_that_is_delivered_again(subscription: Subscription, put_back: str) -> None:
    """A handler puts its message back and returns. Meanwhile another thread has got it again.

    The worker acks and claims in one transaction. It claims nothing of this key, now and later.
    """
    bad, good = heads(subscription)
    good.ack()
    finish(subscription, "good", 1)
    getattr(bad, put_back)()
    (again,) = wait_until(subscription.poll, "it is delivered again")
    engine = engine_of(subscription)
    with engine.state.lock, pytest.raises(StaleDelivery):
        engine.claimer.claim(1, 1, acks=[bad])
    assert consume_rest(subscription) == []
    again.ack()
    finish(subscription, "bad", 1)


def test_an_ack_whose_claim_cannot_read(subscription: Subscription) -> None:
    """The worker acks and claims in one transaction, and a read before it fails. The ack is still missing."""
    bad, good = heads(subscription)
    good.ack()
    finish(subscription, "good", 1)
    engine = engine_of(subscription)
    engine.state.needs_log_read["bad"] = None

    def fail(*arguments: Any) -> None:
        raise OperationalError(1317, "interrupted")

    with engine.state.lock, connection.execute_wrapper(fail), pytest.raises(OperationalError):
        engine.claimer.claim(1, 1, acks=[bad])
    assert consume_rest(subscription) == []
    bad.ack()
    finish(subscription, "bad", 1)
