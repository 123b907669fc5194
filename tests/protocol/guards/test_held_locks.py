"""Look between two statements: which rows are locked during a write, and what is committed together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish, subscribe
from django_mqueue.models import DeliveryState
from tests.protocol.hostile.breaking import before_statement
from tests.support.subscribers import (
    QUICK,
    collect,
    consume,
    engine_of,
    in_log,
    poll_until,
    settle,
    with_state,
)
from tests.support.threads import raw_connection

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]

TOPIC, GROUP = "orders", "billing"

DELETION = "DELETE m FROM"
"""This deletes messages. Their state is deleted before."""

TOPIC_ROW = (
    "SELECT 1 FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
    f" WHERE consumer_group = '' AND topic = '{TOPIC}' AND partition_key = ''"
)
LEASE_ROW = (
    "SELECT 1 FROM queue_partition_leases FORCE INDEX (queue_leases_partition)"
    f" WHERE consumer_group = '{GROUP}' AND topic = '{TOPIC}' AND partition_key = 'k'"
)


@contextmanager
def locked_before(row: str, beginning: str, holding: str) -> Iterator[None]:
    """Check that the row exists and is locked at the moment before that statement is executed."""
    found: list[tuple[int, int]] = []

    def look() -> None:
        with raw_connection() as other:
            found.append((len(other.execute(row)), len(other.execute(f"{row} FOR UPDATE SKIP LOCKED"))))

    with before_statement(beginning, look, holding=holding):
        yield
    assert found == [(1, 0)], f"before {beginning} … {holding}: {found}"


class Death(Exception):
    """The death of the worker between two statements."""


@contextmanager
def dying_before(beginning: str, holding: str = "") -> Iterator[None]:
    def die() -> None:
        raise Death

    with pytest.raises(Death), before_statement(beginning, die, holding=holding):
        yield


def done_message() -> int:
    """Return the offset of a message that is acknowledged, settled and below the watermark."""
    with Subscription(TOPIC, GROUP) as subscription:
        offset = publish(TOPIC, 1, key="k").offset
        consume(subscription, 1)
        settle(subscription)
    return offset


def test_registration_holds_the_topic() -> None:
    subscribe(TOPIC, "another")
    with locked_before(TOPIC_ROW, "INSERT INTO queue_offsets", "VALUES (%s, %s, ''"):
        subscribe(TOPIC, GROUP)


def test_a_claim_holds_its_lease() -> None:
    publish(TOPIC, 1, key="k")
    with (
        Subscription(TOPIC, GROUP) as subscription,
        locked_before(LEASE_ROW, "INSERT INTO queue_delivery_state", ""),
    ):
        consume(subscription, 1)


def test_a_lease_that_is_held_is_not_taken() -> None:
    """A subscriber may wrongly believe that the lease is free. Only the statement that takes it decides."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as owner, Subscription(TOPIC, GROUP) as other:
        (delivery,) = poll_until(owner, 1)
        with engine_of(other).state.lock:
            assert engine_of(other).membership._acquire(["k"]) == 0
        assert delivery.ack()


def test_a_moving_watermark_holds_its_lease() -> None:
    with locked_before(LEASE_ROW, "INSERT INTO queue_offsets", "GREATEST"):
        done_message()


def test_deletion_holds_the_topic() -> None:
    done_message()
    with (
        override_settings(MQUEUE=QUICK),
        locked_before(TOPIC_ROW, DELETION, ""),
    ):
        collect(TOPIC)
    assert in_log(TOPIC) == []


def test_state_and_message_are_deleted_together() -> None:
    offset = done_message()
    with override_settings(MQUEUE=QUICK):
        with dying_before(DELETION):
            collect(TOPIC)
        assert in_log(TOPIC) == with_state(TOPIC, GROUP) == [offset]
        collect(TOPIC)
    assert in_log(TOPIC) == with_state(TOPIC, GROUP) == []


def test_a_dead_letter_and_being_done_are_committed_together() -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        (delivery,) = poll_until(subscription, 1)
        with dying_before("INSERT INTO queue_messages", "failed_group"):
            delivery.reject("no")
        assert not DeliveryState.objects.get().acked
        assert delivery.reject("no")
    assert DeliveryState.objects.get().acked
    assert len(in_log(f"{TOPIC}_dlq")) == 1
