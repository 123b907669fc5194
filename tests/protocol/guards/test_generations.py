"""A worker of a group's earlier registration generation carries nothing over into the new one."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish, subscribe, unsubscribe
from django_mqueue.models import DeliveryState, PartitionLease
from tests.support.subscribers import QUICK, consume, consume_rest, poll_until, settle

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"


@override_settings(MQUEUE={**QUICK, "DISCOVERY_INTERVAL": 60, "RETENTION": 3600})
def test_a_lease_of_an_earlier_life_claims_nothing() -> None:
    """The worker checks its group once a minute, and learns of a new key before that."""
    with Subscription(TOPIC, GROUP) as worker:
        publish(TOPIC, "old", key="k")
        consume(worker, 1)
        settle(worker)
        assert unsubscribe(TOPIC, GROUP)
        assert subscribe(TOPIC, GROUP)
        publish(TOPIC, "new", key="other")
        assert consume_rest(worker, due=False) == []
        taken = PartitionLease.objects.filter(partition_key="other")
        assert taken.exists(), "it took no lease: this proves nothing"
        assert not DeliveryState.objects.exists()


@override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 120, "LEASE_RENEWAL_INTERVAL": 60, "RETENTION": 3600})
def test_a_partition_that_comes_back_in_a_new_life_is_read_anew() -> None:
    """The worker has acked all three messages. In the new generation, another worker acks the first one and leaves."""
    with Subscription(TOPIC, GROUP, name="a") as worker:
        for number in range(3):
            publish(TOPIC, number, key="k")
        consume(worker, 3)
        settle(worker)
        assert unsubscribe(TOPIC, GROUP)
        assert subscribe(TOPIC, GROUP)
        with Subscription(TOPIC, GROUP, name="b", batch_size=1) as other:
            (first,) = poll_until(other, 1)
            first.ack()
        assert [delivery.payload for delivery in consume(worker, 2)] == [1, 2]
