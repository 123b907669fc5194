"""A partition goes to another worker when its owner has finished what it has of it, and not before."""

from __future__ import annotations

import pytest

from django_mqueue import OutgoingMessage, Subscription, publish_many
from tests.support.subscribers import consume_for, poll_until
from tests.support.transactions import wait

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]

TOPIC, GROUP = "orders", "billing"


def test_what_is_in_flight_keeps_its_partition() -> None:
    """A second member owns none of the four while all have something in flight, for many looks at the shares."""
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n}") for n in range(4)])
    with Subscription(TOPIC, GROUP, name="a") as first:
        held = poll_until(first, 4)
        with Subscription(TOPIC, GROUP, name="b") as second:
            for _ in range(20):
                assert first.poll() == second.poll() == []
                wait(0.025)
            assert all(delivery.ack() for delivery in held)
            assert consume_for(second, 0.2) == []
