"""Rows that redrive, reset and release lock, and changes that they commit together."""

from __future__ import annotations

import pytest

from django_mqueue import (
    NotRegistered,
    Subscription,
    publish,
    redrive,
    release,
    reset,
    subscribe,
    unsubscribe,
)
from tests.protocol.hostile.breaking import before_statement
from tests.support.subscribers import consume, consume_rest, in_log, poll_until, settle, with_state
from tests.support.threads import Background

from .test_held_locks import GROUP, LEASE_ROW, TOPIC, TOPIC_ROW, done_message, dying_before, locked_before

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]

REGISTRATION = (
    "SELECT 1 FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
    f" WHERE consumer_group = '{GROUP}' AND topic = '{TOPIC}' AND partition_key = ''"
)


@pytest.fixture
def letter() -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        poll_until(subscription, 1)[0].reject("no")


@pytest.mark.usefixtures("letter")
def test_redrive_holds_the_registrations_that_it_needs() -> None:
    """If the group could unsubscribe meanwhile, its redriven message and its dead letter would both be lost."""
    with locked_before(REGISTRATION, "INSERT INTO queue_messages", "original_id"):
        assert redrive(TOPIC) == 1


@pytest.mark.usefixtures("letter")
def test_a_letter_goes_as_its_message_comes() -> None:
    with dying_before("DELETE m FROM"):
        redrive(TOPIC)
    assert (len(in_log(TOPIC)), len(in_log(f"{TOPIC}_dlq"))) == (1, 1)
    assert redrive(TOPIC) == 1
    assert (len(in_log(TOPIC)), len(in_log(f"{TOPIC}_dlq"))) == (2, 0)


NEW_REGISTRATION = "VALUES (%s, %s, ''"


def test_a_reset_is_one_transaction() -> None:
    """If the group were not registered for a moment, it could lose the messages that are deleted then."""
    offset = done_message()
    with dying_before("INSERT INTO queue_offsets", NEW_REGISTRATION):
        reset(TOPIC, GROUP, "earliest")
    assert with_state(TOPIC, GROUP) == [offset]
    with Subscription(TOPIC, GROUP) as subscription:
        assert consume_rest(subscription) == []


def test_a_reset_holds_the_topic() -> None:
    """It locks the topic before it changes anything, as a collection does. Otherwise the two could deadlock."""
    done_message()
    with locked_before(TOPIC_ROW, "DELETE o FROM queue_offsets", ""):
        reset(TOPIC, GROUP, "earliest")


def test_a_reset_registers_nobody_who_has_unsubscribed_meanwhile() -> None:
    subscribe(TOPIC, GROUP)
    with (
        before_statement("SELECT 1 FROM queue_offsets", lambda: Background(leave).start().result()),
        pytest.raises(NotRegistered),
    ):
        reset(TOPIC, GROUP, "earliest")
    assert not unsubscribe(TOPIC, GROUP)


def leave() -> None:
    assert unsubscribe(TOPIC, GROUP)


def test_a_reset_forgets_where_the_partitions_stood() -> None:
    """Positions that stay would hide the messages that must be delivered again."""
    done_message()
    reset(TOPIC, GROUP, "earliest")
    with Subscription(TOPIC, GROUP) as subscription:
        assert [delivery.attempt for delivery in consume(subscription, 1)] == [1]
        settle(subscription)


def test_a_release_holds_the_lease() -> None:
    """Without the lock, the lease could belong to another subscriber right after the release has read its owner."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        poll_until(subscription, 1)
        with locked_before(LEASE_ROW, "UPDATE queue_partition_leases", "holder = ''"):
            assert int(release(TOPIC, GROUP, partition="k")) == 1
