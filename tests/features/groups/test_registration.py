"""A registered group gets every message, even if its workers start late. A new group gets what is still stored."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_mqueue import (
    MQueueError,
    NotRegistered,
    OutgoingMessage,
    Subscription,
    publish,
    publish_many,
    subscribe,
    unsubscribe,
)
from django_mqueue.models import DeliveryState, Offset, PartitionLease, SubscriberHeartbeat
from tests.support.fixtures import with_settings
from tests.support.subscribers import (
    QUICK,
    collect,
    consume,
    in_log,
    payloads,
    poll_until,
    settle_and_collect,
)
from tests.support.transactions import Background

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"


quick = with_settings(MQUEUE=QUICK)


def test_a_registered_group_that_is_down_gets_everything() -> None:
    """Group A consumes a new partition. Only the registration of B keeps its messages, and B receives all of them."""
    subscribe(TOPIC, "a")
    subscribe(TOPIC, "b")
    with Subscription(TOPIC, group="a") as subscription:
        publish_many(TOPIC, [OutgoingMessage(n, key=f"new-{n % 2}") for n in range(20)])
        consume(subscription, 20)
        settle_and_collect(subscription)
        assert len(in_log(TOPIC)) == 20
    with Subscription(TOPIC, group="b") as subscription:
        assert sorted(map(str, payloads(subscription, 20))) == sorted(map(str, range(20)))
        settle_and_collect(subscription)
    assert in_log(TOPIC) == []
    assert not DeliveryState.objects.exists()


def test_a_group_that_never_ran_holds_back_partitions_it_never_saw() -> None:
    """Other groups consumed these partitions and gave them up long before the group's first worker."""
    subscribe(TOPIC, "b")
    for number in range(3):
        with Subscription(TOPIC, group="a") as subscription:
            publish(TOPIC, number, key=f"key-{number}")
            consume(subscription, 1)
            settle_and_collect(subscription)
    PartitionLease.objects.all().delete()
    with Subscription(TOPIC, group="b") as subscription:
        assert sorted(map(str, payloads(subscription, 3))) == ["0", "1", "2"]


def test_a_topic_without_a_registered_group_forgets_nothing() -> None:
    """Repeated collections delete none of its messages."""
    subscribe(TOPIC, "gone")
    unsubscribe(TOPIC, "gone")
    publish_many(TOPIC, range(5))
    for _ in range(2):
        collect(TOPIC)
    assert len(in_log(TOPIC)) == 5


def test_a_new_group_gets_what_is_still_there() -> None:
    """The group does not get messages that the others finished and that were collected. It gets all others."""
    with Subscription(TOPIC, group="a") as subscription:
        publish(TOPIC, "gone", key="k")
        consume(subscription, 1)
        settle_and_collect(subscription)
        publish(TOPIC, "there", key="k")
        consume(subscription, 1)
    with Subscription(TOPIC, group="b") as subscription:
        assert payloads(subscription, 1) == ["there"]


def test_a_new_group_gets_what_was_published_before_anybody_registered() -> None:
    publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(3)])
    assert subscribe(TOPIC, "a")
    with Subscription(TOPIC, group="a") as subscription:
        assert payloads(subscription, 3) == [0, 1, 2]


def test_a_group_that_unsubscribes_stops_holding_deletion_back() -> None:
    """Its delivery state, positions, leases and heartbeats are deleted as well."""
    subscribe(TOPIC, "a")
    subscribe(TOPIC, "b")
    with Subscription(TOPIC, group="a") as subscription:
        publish_many(TOPIC, range(10))
        consume(subscription, 10)
        with Subscription(TOPIC, group="b") as other:
            poll_until(other, 5)
        settle_and_collect(subscription)
        assert len(in_log(TOPIC)) == 10
        assert unsubscribe(TOPIC, "b")
        settle_and_collect(subscription)
    assert in_log(TOPIC) == []
    for model in (DeliveryState, Offset, PartitionLease, SubscriberHeartbeat):
        assert not model.objects.filter(consumer_group="b").exists()


def test_unsubscribing_the_last_group_keeps_what_is_left() -> None:
    """No group is registered then, and the next group may need the messages."""
    with Subscription(TOPIC, group="a") as subscription:
        publish_many(TOPIC, range(3))
        consume(subscription, 3)
        assert unsubscribe(TOPIC, "a")
    collect(TOPIC)
    assert len(in_log(TOPIC)) == 3


def test_subscribing_again_starts_anew() -> None:
    """Nothing of the first registration is kept. An operator can set another position with ``reset``."""
    publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(3)])
    with Subscription(TOPIC, group="a") as subscription:
        consume(subscription, 3)
    assert unsubscribe(TOPIC, "a")
    assert subscribe(TOPIC, "a")
    with Subscription(TOPIC, group="a") as subscription:
        assert payloads(subscription, 3) == [0, 1, 2]


def test_subscribe_and_unsubscribe_tell_whether_they_changed_anything() -> None:
    """Both return whether they changed anything. A registered group keeps its position, whatever start is requested."""
    assert not unsubscribe(TOPIC, "a")
    assert subscribe(TOPIC, "a")
    publish(TOPIC, 1, key="k")
    assert not subscribe(TOPIC, "a", start="latest")
    with Subscription(TOPIC, group="a", start="latest") as subscription:
        assert payloads(subscription, 1) == [1]
    assert unsubscribe(TOPIC, "a")
    assert not unsubscribe(TOPIC, "a")


def test_the_worker_of_an_unsubscribed_group_is_told() -> None:
    """The worker's next polls raise ``NotRegistered``.

    It claims nothing more, and does not register again by itself.
    """
    with Subscription(TOPIC, group="a") as subscription:
        publish(TOPIC, 1, key="k")
        (delivery,) = poll_until(subscription, 1)
        unsubscribe(TOPIC, "a")
        publish(TOPIC, 2, key="k")
        with pytest.raises(MQueueError):
            delivery.ack()
        with pytest.raises(NotRegistered, match="orders"):
            poll_until(subscription, 1)
    assert not Offset.objects.filter(consumer_group="a").exists()
    assert not DeliveryState.objects.filter(consumer_group="a").exists()


@pytest.mark.usefixtures("repeatable_read")
def test_a_group_that_was_unsubscribed_since_the_snapshot_is_registered_again() -> None:
    subscribe(TOPIC, "billing")
    with transaction.atomic():
        assert Offset.objects.filter(consumer_group="billing").exists()
        with Background(lambda: unsubscribe(TOPIC, "billing")) as other:
            assert other.result()
        assert subscribe(TOPIC, "billing")
    assert Offset.objects.filter(consumer_group="billing", partition_key="").exists()
