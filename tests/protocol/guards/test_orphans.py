"""A member sends heartbeats but takes no partition. The other members take over its share."""

from __future__ import annotations

import pytest

from django_mqueue import OutgoingMessage, Subscription, publish_many, subscribe
from django_mqueue.models import PartitionLease, SubscriberHeartbeat
from tests.support.processes import database_ms
from tests.support.subscribers import consume

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]

TOPIC, GROUP = "orders", "billing"
MANY = 12


@pytest.fixture
def idler() -> None:
    """Create a member that sends heartbeats and does nothing else."""
    subscribe(TOPIC, GROUP)
    SubscriberHeartbeat.objects.create(
        consumer_group=GROUP, topic=TOPIC, subscriber_name="idler", incarnation="i" * 32,
        heartbeat_at=database_ms() + 3_600_000,
    )  # fmt: skip


def publish_all(payload: str) -> None:
    publish_many(TOPIC, [OutgoingMessage(payload, key=f"k{n}") for n in range(MANY)])


@pytest.mark.usefixtures("idler")
def test_new_partitions_that_their_member_does_not_take_find_an_owner() -> None:
    with Subscription(TOPIC, GROUP, name="worker") as worker:
        publish_all("new")
        consume(worker, MANY)


@pytest.mark.usefixtures("idler")
def test_free_leases_that_their_member_does_not_take_find_an_owner() -> None:
    publish_all("there")
    PartitionLease.objects.bulk_create(
        PartitionLease(
            consumer_group=GROUP, topic=TOPIC, partition_key=f"k{n}", leased_by="", holder="", leased_at=0,
            lease_renewed_at=0,
        )
        for n in range(MANY)
    )  # fmt: skip
    with Subscription(TOPIC, GROUP, name="worker") as worker:
        consume(worker, MANY)
