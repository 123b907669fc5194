"""Acks and polls on a connection with autocommit turned off: a transaction without an ``atomic`` block."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import OperationalError, connection

from django_mqueue import Delivery, MQueueError, Subscription, publish, scheduled, signals
from django_mqueue.models import DeliveryState
from tests.features.signals.listening import listening
from tests.support.subscribers import engine_of, poll_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "postpone", "extend"])
def test_answers_with_autocommit_turned_off_count_with_the_commit(verb: str) -> None:
    """There is a transaction without an ``atomic`` block. The verb returns True, and takes effect with the commit."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        (delivery,) = poll_until(subscription, 1)
        connection.set_autocommit(False)
        try:
            assert getattr(delivery, verb)(*([60] if verb == "extend" else []))
            connection.commit()
        finally:
            connection.set_autocommit(True)
        state = DeliveryState.objects.get()
        assert (state.acked, state.in_flight) == (verb in ("ack", "reject"), verb == "extend")
        if verb in ("nack", "postpone"):
            (again,) = poll_until(subscription, 1)
            assert again.attempt == (2 if verb == "nack" else 1)


def test_polling_with_autocommit_turned_off_is_refused() -> None:
    """Poll raises, because a rollback would undo its claims. Nothing is leased or claimed."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        connection.set_autocommit(False)
        try:
            with pytest.raises(MQueueError, match="transaction"):
                subscription.poll()
        finally:
            connection.set_autocommit(True)
        assert not DeliveryState.objects.exists()


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


ROLLBACKS = {"by Django": connection.rollback, "by SQL": lambda: execute("ROLLBACK")}
COMMITS = {"by Django": connection.commit, "by SQL": lambda: execute("COMMIT")}
ANSWERS = ("ack", "nack", "reject", "postpone", "atomic")


def answer(delivery: Delivery, verb: str) -> None:
    if verb == "atomic":
        with delivery.atomic():
            pass
    else:
        assert getattr(delivery, verb)()


def ended_by(end: Callable[[], object], delivery: Delivery, verb: str) -> None:
    """Turn autocommit off, answer the delivery, and call ``end`` to end the transaction."""
    connection.set_autocommit(False)
    try:
        answer(delivery, verb)
        end()
    finally:
        connection.set_autocommit(True)


@pytest.mark.parametrize("end", ROLLBACKS.values(), ids=ROLLBACKS)
@pytest.mark.parametrize("verb", ANSWERS)
def test_an_answer_that_is_rolled_back_leaves_its_delivery_open(verb: str, end: Callable[[], object]) -> None:
    """In strict order the next message of the key waits. The delivery can be answered again."""
    publish(TOPIC, 1, key="k")
    publish(TOPIC, 2, key="k")
    with Subscription(TOPIC, GROUP, strict=True) as subscription:
        (first,) = poll_until(subscription, 1)
        ended_by(end, first, verb)
        for _ in range(3):
            assert subscription.poll() == []
        assert first.ack()
        (second,) = poll_until(subscription, 1)
        assert (second.payload, second.attempt) == (2, 1)


@pytest.mark.parametrize("verb", ["ack", "reject", "atomic"])
def test_a_message_whose_answer_is_rolled_back_is_delivered_again(verb: str) -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP, visibility_timeout=0.3) as subscription:
        (first,) = poll_until(subscription, 1)
        ended_by(connection.rollback, first, verb)
        (again,) = poll_until(subscription, 1)
        assert (again.payload, again.attempt) == (1, 2)
        again.ack()


@pytest.mark.parametrize("end", COMMITS.values(), ids=COMMITS)
@pytest.mark.parametrize("verb", ANSWERS)
def test_an_answer_that_is_committed_is_known_at_the_next_poll(verb: str, end: Callable[[], object]) -> None:
    """In strict order the next poll returns the next message of the key, or the same message after nack or postpone."""
    publish(TOPIC, 1, key="k")
    publish(TOPIC, 2, key="k")
    with Subscription(TOPIC, GROUP, strict=True) as subscription:
        (first,) = poll_until(subscription, 1)
        ended_by(end, first, verb)
        (following,) = poll_until(subscription, 1)
        assert following.payload == (1 if verb in ("nack", "postpone") else 2)


@pytest.mark.parametrize("verb", ["nack", "postpone"])
def test_a_committed_retry_after_hours_is_known_at_the_next_poll(verb: str) -> None:
    """The retry is parked outside the log. The poll sends the signal, and forgets the delivery."""
    publish(TOPIC, 1, key="k")
    with listening(signals.failed, signals.postponed) as heard, Subscription(TOPIC, GROUP) as subscription:
        (delivery,) = poll_until(subscription, 1)
        connection.set_autocommit(False)
        try:
            assert getattr(delivery, verb)(delay=7200)
            connection.commit()
        finally:
            connection.set_autocommit(True)
        assert heard.names == []
        assert subscription.poll() == []
        assert heard.names == ["failed" if verb == "nack" else "postponed"]
        assert not engine_of(subscription).in_flight
    (waits,) = scheduled(TOPIC)
    assert waits.attempts == (1 if verb == "nack" else 0)


@pytest.mark.parametrize("verb", ["ack", "atomic"])
def test_one_answer_is_committed_and_the_next_is_rolled_back(verb: str) -> None:
    publish(TOPIC, 1, key="a")
    publish(TOPIC, 2, key="b")
    publish(TOPIC, 3, key="a")
    with Subscription(TOPIC, GROUP, strict=True) as subscription:
        first, second = sorted(poll_until(subscription, 2), key=lambda delivery: delivery.offset)
        connection.set_autocommit(False)
        answer(first, verb)
        connection.commit()
        answer(second, verb)
        connection.rollback()
        connection.set_autocommit(True)
        (third,) = poll_until(subscription, 1)
        assert third.payload == 3
        assert subscription.poll() == []
        assert subscription.ack([second, third])
    assert DeliveryState.objects.filter(acked=True).count() == 3


def test_polls_look_for_answers_only_after_such_a_transaction() -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        (first,) = poll_until(subscription, 1)
        first.ack()
        assert not engine_of(subscription).state.unconfirmed


def test_an_answer_after_a_raw_begin_commits() -> None:
    """Django does not notice the BEGIN. The subscriber and the database agree that the message is acked."""
    publish(TOPIC, 1, key="k")
    publish(TOPIC, 2, key="k")
    with Subscription(TOPIC, GROUP, strict=True) as subscription:
        (first,) = poll_until(subscription, 1)
        execute("BEGIN")
        assert first.ack()
        execute("ROLLBACK")
        assert DeliveryState.objects.get().acked
        (second,) = poll_until(subscription, 1)
        assert second.payload == 2


@pytest.mark.usefixtures("repeatable_read")
def test_an_answer_after_a_raw_begin_is_refused_at_repeatable_read() -> None:
    """The queue cannot set its isolation level in this transaction.

    The server raises error 1568, and nothing has changed.
    """
    publish(TOPIC, 1, key="k")
    publish(TOPIC, 2, key="k")
    with Subscription(TOPIC, GROUP, strict=True) as subscription:
        (first,) = poll_until(subscription, 1)
        execute("BEGIN")
        with pytest.raises(OperationalError, match="1568"):
            first.ack()
        execute("ROLLBACK")
        assert subscription.poll() == []
        assert first.ack()
