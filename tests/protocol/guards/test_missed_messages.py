"""The tailer and the watermark look again, and find messages that the first look missed."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many
from tests.support.subscribers import QUICK, consume, engine_of
from tests.support.transactions import HeldTransaction

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]

TOPIC, GROUP = "orders", "billing"


def test_a_late_commit_is_delivered_while_nothing_settles() -> None:
    """Another transaction of the topic stays open all the time, so that no watermark moves."""
    with Subscription(TOPIC, GROUP) as subscription, HeldTransaction(lambda: publish(TOPIC, "open")):
        with HeldTransaction(lambda: publish(TOPIC, "late", key="k")) as late:
            publish(TOPIC, "early", key="k")
            consume(subscription, 1)
            late.commit()
        (delivery,) = consume(subscription, 1)
        assert delivery.payload == "late"


@override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 60, "RETENTION": 3600})
def test_what_memory_has_lost_is_found_by_the_watermark() -> None:
    """The worker forgets two of three messages, as a bug might do. They are delayed, but not lost."""
    publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(3)])
    with Subscription(TOPIC, GROUP) as subscription:
        assert consume_first(subscription) == 0
        engine_of(subscription).state.partitions["k"].fresh.clear()
        assert sorted(delivery.payload for delivery in consume(subscription, 2)) == [1, 2]


def consume_first(subscription: Subscription) -> object:
    (delivery,) = subscription.poll(max_messages=1)
    delivery.ack()
    return delivery.payload
