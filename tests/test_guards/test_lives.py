"""A lease that a worker of a group's earlier life takes in the new one is worth nothing until it has noticed."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish, subscribe, unsubscribe
from django_mqueue.models import DeliveryState, PartitionLease
from tests.support.subscribers import QUICK, consume, consume_for, settle

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"


@override_settings(MQUEUE={**QUICK, "DISCOVERY_INTERVAL": 60, "RETENTION": 3600})
def test_a_lease_of_an_earlier_life_claims_nothing() -> None:
    """It looks at its group once a minute, and hears of a new key before that."""
    with Subscription(TOPIC, GROUP) as worker:
        publish(TOPIC, "old", key="k")
        consume(worker, 1)
        settle(worker)
        assert unsubscribe(TOPIC, GROUP)
        assert subscribe(TOPIC, GROUP)
        publish(TOPIC, "new", key="other")
        assert consume_for(worker, 0.3) == []
        assert PartitionLease.objects.filter(partition_key="other").exists(), (
            "it took no lease: this proves nothing"
        )
        assert not DeliveryState.objects.exists()
