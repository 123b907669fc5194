"""The poll interval is much longer than the interval of lease renewals."""

from __future__ import annotations

import pytest

from django_mqueue import publish
from django_mqueue.models import DeliveryState, Message, PartitionLease, SubscriberHeartbeat
from tests.support.processes import Workers, database_ms, wait_until
from tests.support.shop.models import Door, Step

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = 4


@pytest.mark.parametrize(("topic", "handlers"), [("orders", "orders:billing"), ("parcels", "parcels")])
def test_leases_are_renewed_between_two_looks_and_a_handler_is_run_once(topic: str, handlers: str) -> None:
    """The visibility timeout of ``parcels`` is shorter than the poll interval. Another worker joins meanwhile."""
    with Workers() as workers:
        for n in range(KEYS):
            publish(topic, {"n": n, "do": "wait", "door": "exit"}, key=f"k{n}")
        first = workers.start(handlers, "--poll-interval", "60")
        wait_until(lambda: Step.objects.count() >= KEYS, "all are begun")
        begun = database_ms()
        second = workers.start(handlers, "--poll-interval", "60")
        wait_until(lambda: SubscriberHeartbeat.objects.count() == 2, "the other has joined")
        for _ in range(3):
            now = max(database_ms(), begun + 2000)  # The messages of ``parcels`` would be visible again.
            leases = PartitionLease.objects.filter(lease_renewed_at__gt=now)
            beats = SubscriberHeartbeat.objects.filter(heartbeat_at__gt=now)
            wait_until(lambda: leases.count() == KEYS and beats.count() == 2, "both go on")  # noqa: B023
        Door.objects.create(name="exit")
        wait_until(lambda: Step.objects.filter(what="end").count() >= KEYS, "all are handled")
        assert [first.stop(), second.stop()] == [0, 0]
    assert sorted(Step.objects.filter(what="start").values_list("number", flat=True)) == list(range(KEYS))
    assert set(DeliveryState.objects.values_list("acked", "retry_count", "failure_count")) == {(True, 0, 0)}
    assert not Message.objects.filter(topic=f"{topic}_dlq").exists()
