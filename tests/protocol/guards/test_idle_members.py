"""A member sends heartbeats but takes no partition. The other members take over its share."""

from __future__ import annotations

import pytest

from django_mqueue import OutgoingMessage, Subscription, publish_many, subscribe
from django_mqueue.models import PartitionLease, SubscriberHeartbeat
from django_mqueue.protocol import membership
from tests.support.processes import database_ms
from tests.support.subscribers import consume, engine_of, make_due

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]

TOPIC, GROUP = "orders", "billing"
MANY = 12
MORE = 450
"""Partitions of which each discovery checks a part."""


@pytest.fixture
def idler() -> None:
    """Create a member that sends heartbeats and does nothing else."""
    subscribe(TOPIC, GROUP)
    add_idler("idler")


def add_idler(name: str) -> None:
    SubscriberHeartbeat.objects.create(
        consumer_group=GROUP, topic=TOPIC, subscriber_name=name, incarnation="i" * 32,
        heartbeat_at=database_ms() + 3_600_000,
    )  # fmt: skip


def publish_all(payload: str, count: int = MANY) -> None:
    publish_many(TOPIC, [OutgoingMessage(payload, key=f"k{n}") for n in range(count)])


def free_leases(since: int) -> None:
    PartitionLease.objects.bulk_create(
        PartitionLease(
            consumer_group=GROUP, topic=TOPIC, partition_key=f"k{n}", leased_by="", holder="", leased_at=0,
            lease_renewed_at=since,
        )
        for n in range(MANY)
    )  # fmt: skip


@pytest.mark.usefixtures("idler")
@pytest.mark.parametrize("count", [MANY, MORE])
def test_new_partitions_that_their_member_does_not_take_find_an_owner(count: int) -> None:
    with Subscription(TOPIC, GROUP, name="worker") as worker:
        publish_all("new", count)
        consume(worker, count)


@pytest.mark.usefixtures("idler")
def test_free_leases_that_their_member_does_not_take_find_an_owner() -> None:
    publish_all("there")
    free_leases(since=0)
    with Subscription(TOPIC, GROUP, name="worker") as worker:
        consume(worker, MANY)


@pytest.mark.usefixtures("idler")
def test_a_lease_that_was_just_released_is_not_taken_above_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the members of a large group take what others release, and release it again."""
    monkeypatch.setattr(membership, "ORPHANED_AFTER", 36_000)
    publish_all("there")
    free_leases(since=database_ms())
    with Subscription(TOPIC, GROUP, name="worker") as worker:
        for _ in range(10):
            make_due(worker)
            worker.poll()
            assert PartitionLease.objects.exclude(holder="").count() == MANY / 2


@pytest.mark.usefixtures("idler")
def test_a_candidate_whose_work_is_done_is_forgotten() -> None:
    """Another member has leased it and given it up, before this one has checked it."""
    with Subscription(TOPIC, GROUP, name="worker") as worker:
        members = engine_of(worker).membership
        members.candidates.update({f"k{n}": 1 for n in range(MORE)})
        make_due(worker)
        worker.poll()
        assert not members.candidates
    assert not PartitionLease.objects.exists()


@pytest.mark.usefixtures("idler")
def test_new_partitions_find_an_owner_in_a_few_discoveries() -> None:
    """Five of six members take nothing. Each discovery checks a part of the partitions."""
    for n in range(4):
        add_idler(f"idler-{n}")
    with Subscription(TOPIC, GROUP, name="worker") as worker:
        publish_all("new", MORE)
        for _ in range(10):
            make_due(worker)
            worker.poll()
    assert PartitionLease.objects.count() == MORE
