"""A caller keeps its ack in an open transaction for longer than a lease: the lease is not renewed, and not lost."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish
from django_mqueue.models import PartitionLease
from django_mqueue.signals import lease_lost
from tests.support.subscribers import QUICK, consume_rest, engine_of, poll_until
from tests.support.transactions import HeldTransaction

pytestmark = pytest.mark.django_db(transaction=True)


@override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 600})
def test_other_deliveries_of_the_partition_stay_with_their_handlers() -> None:
    """A polls d1 and d2 of one key. B acks d1, and its transaction stays open. The lease is older than its duration.

    A's polls skip the lease when they renew, and find an expired one. They must not drop their own partition: after
    B's commit, d2 would come again while its handler still runs.
    """
    lost: list[object] = []

    def note(sender: object, **_: object) -> None:
        lost.append(sender)

    for number in range(2):
        publish("orders", number, key="k")
    lease_lost.connect(note)
    try:
        with Subscription("orders", "billing", visibility_timeout=600) as subscription:
            first, second = poll_until(subscription, 2)
            PartitionLease.objects.update(lease_renewed_at=0)
            with HeldTransaction(first.ack) as held:
                assert consume_rest(subscription) == []
                assert list(engine_of(subscription).state.partitions) == ["k"]
                assert PartitionLease.objects.get().lease_renewed_at == 0, "it was locked"
                held.commit()
            assert consume_rest(subscription) == []
            assert second.ack()
            assert lost == []
    finally:
        lease_lost.disconnect(note)
