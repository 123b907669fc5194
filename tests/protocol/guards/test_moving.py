"""A partition moves to another worker when its owner has finished its messages of the partition, and not before."""

from __future__ import annotations

import math

import pytest

from django_mqueue import OutgoingMessage, Subscription, publish_many
from django_mqueue.models import PartitionLease
from tests.support.subscribers import consume_rest, engine_of, make_due, poll_until
from tests.support.transactions import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]

TOPIC, GROUP = "orders", "billing"


def test_what_is_in_flight_keeps_its_partition() -> None:
    """All four partitions have a message in flight. A second member gets none of them, in many checks of the shares."""
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n}") for n in range(4)])
    with Subscription(TOPIC, GROUP, name="a") as first:
        held = poll_until(first, 4)
        with Subscription(TOPIC, GROUP, name="b") as second:
            for _ in range(20):
                make_due(first)
                make_due(second)
                assert first.poll() == second.poll() == []
            assert all(delivery.ack() for delivery in held)
            assert consume_rest(second) == []


def test_what_was_left_to_others_is_not_taken_back_with_its_next_message() -> None:
    """A member with more than its share leaves some partitions. New messages come before another member takes them."""
    publish_many(TOPIC, [OutgoingMessage("first", key=f"k{n}") for n in range(16)])
    with Subscription(TOPIC, GROUP, name="a") as first:
        assert all(delivery.ack() for delivery in poll_until(first, 16))
        with Subscription(TOPIC, GROUP, name="b"):
            membership = engine_of(first).membership

            def free() -> set[str]:
                rows = PartitionLease.objects.filter(holder="")
                return set(rows.values_list("partition_key", flat=True))

            wait_until(lambda: (first.poll(), free())[1], "the first leaves some")
            left = free()
            assert any(membership._is_designated(name) for name in left), (
                "of new ones it would take some at once"
            )
            membership._beat_at = math.inf  # No discovery: it may take partitions that stay free.
            publish_many(TOPIC, [OutgoingMessage("next", key=name) for name in sorted(left)])
            assert [first.poll() for _ in range(3)] == [[], [], []]
            assert free() == left
