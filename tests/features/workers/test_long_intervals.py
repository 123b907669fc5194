"""Looks for new messages that are further apart than a lease is long."""

from __future__ import annotations

import pytest

from django_mqueue import publish
from django_mqueue.models import DeliveryState, Message, SubscriberHeartbeat
from tests.support.processes import FAST, Workers, database_ms, wait_until
from tests.support.shop.models import Door, Step

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = 4


@pytest.mark.parametrize(("topic", "handlers"), [("orders", "orders:billing"), ("parcels", "parcels")])
def test_a_handler_that_outlasts_the_lease_is_run_once(topic: str, handlers: str) -> None:
    """Also one whose messages become visible again sooner. Another worker comes when the lease would be over."""
    with Workers({**FAST, "LEASE_DURATION": 2, "LEASE_RENEWAL_INTERVAL": 0.5}) as workers:
        for n in range(KEYS):
            publish(topic, {"n": n, "do": "wait", "door": "exit"}, key=f"k{n}")
        first = workers.start(handlers, "--poll-interval", "60")
        wait_until(lambda: Step.objects.count() >= KEYS, "all are begun")
        begun = database_ms()
        wait_until(lambda: database_ms() > begun + 3000, "the lease would be over")
        second = workers.start(handlers, "--poll-interval", "60")
        wait_until(lambda: SubscriberHeartbeat.objects.count() == 2, "the other has joined")
        wait_until(lambda: database_ms() > begun + 6000, "it has looked around")
        Door.objects.create(name="exit")
        wait_until(lambda: Step.objects.filter(what="end").count() >= KEYS, "all are handled")
        assert [first.stop(), second.stop()] == [0, 0]
    assert sorted(Step.objects.filter(what="start").values_list("number", flat=True)) == list(range(KEYS))
    assert set(DeliveryState.objects.values_list("acked", "retry_count", "failure_count")) == {(True, 0, 0)}
    assert not Message.objects.filter(topic=f"{topic}_dlq").exists()
