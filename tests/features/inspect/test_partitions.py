"""The position of a group in each partition, and the messages that its workers have in flight."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_mqueue import (
    NotRegistered,
    OutgoingMessage,
    Subscription,
    publish,
    publish_many,
    release,
    subscribe,
)
from django_mqueue.inspect import PartitionPlace, deliveries, partitions
from django_mqueue.models import DeliveryState, PartitionLease
from django_mqueue.service.actions import recent
from django_mqueue.stats.groups import backlog, group_progress
from tests.factories import DeliveryStateFactory, LeaseFactory, MessageFactory, OffsetFactory
from tests.support.subscribers import poll_until, settle

from .scene import GROUP, TOPIC, one_of_each, published

pytestmark = pytest.mark.django_db(transaction=True)


def by_name(**asked: Any) -> dict[str, PartitionPlace]:
    return {one.partition: one for one in partitions(TOPIC, GROUP, **asked).partitions}


def test_each_partition_says_how_far_the_group_is() -> None:
    offsets = one_of_each()
    found = by_name()
    assert list(found) == ["dead", "done", "in_flight", "pending", "waiting"]
    lags = {name: (one.lag.value, one.lag.how) for name, one in found.items()}
    assert lags == {
        "dead": (0, "exact"), "done": (0, "exact"), "in_flight": (1, "exact"), "pending": (1, "exact"),
        "waiting": (1, "exact"),
    }  # fmt: skip
    assert found["done"].acked >= offsets["done"]
    assert found["done"].moved_at is not None
    assert found["in_flight"].in_flight == 1
    assert found["in_flight"].acked < offsets["in_flight"]
    assert (found["done"].lease, found["done"].owner) == ("held", "worker-1")
    assert found["done"].age is not None
    assert found["done"].age < timedelta(minutes=5)
    assert (found["pending"].lease, found["pending"].owner, found["pending"].moved_at) == (None, "", None)


def test_a_lease_runs_out_and_is_free() -> None:
    one_of_each()
    PartitionLease.objects.filter(partition_key="done").update(lease_renewed_at=1)
    assert release(TOPIC, GROUP, partition="dead").partitions == ("dead",)
    found = by_name()
    assert (found["done"].lease, found["done"].owner) == ("expired", "worker-1")
    assert (found["dead"].lease, found["dead"].owner, found["dead"].holder) == ("free", "", "")


def test_what_is_done_above_the_watermark_is_not_behind() -> None:
    with Subscription(TOPIC, GROUP) as subscription:
        published(1, 2, 3, 4)
        got = poll_until(subscription, 4)
        got[1].ack()
        got[3].ack()
        settle(subscription)
        assert by_name()["k"].lag.value == 2


def test_messages_for_another_group_are_not_behind() -> None:
    subscribe(TOPIC, GROUP)
    subscribe(TOPIC, "stock")
    publish(TOPIC, 1, key="k", group="stock")
    publish(TOPIC, 2, key="k", group=GROUP)
    publish(TOPIC, 3, key="k")
    assert by_name()["k"].lag.value == 2


def test_page_by_page_of_all_that_is_known_of() -> None:
    """The pages list partitions of the log, of the group's positions and of its leases. Keyless ones are first."""
    subscribe(TOPIC, GROUP)
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n}") for n in range(5)])
    MessageFactory.create(topic=TOPIC, partition_key=" 0003")
    OffsetFactory.create(topic=TOPIC, consumer_group=GROUP, partition_key="position", offset_acked=7)
    LeaseFactory.create(topic=TOPIC, consumer_group=GROUP, partition_key="lease")
    LeaseFactory.create(topic=TOPIC, consumer_group="stock", partition_key="another's")
    names, after = [], ""
    for _ in range(10):
        page = partitions(TOPIC, GROUP, after=after, limit=3)
        assert len(page.partitions) <= 3
        names += [one.partition for one in page.partitions]
        if page.next is None:
            break
        after = page.next
    assert names == [" 0003", "k0", "k1", "k2", "k3", "k4", "lease", "position"]
    assert by_name(partition="k2").keys() == {"k2"}
    assert by_name()[" 0003"].key is None


def test_of_one_subscriber() -> None:
    subscribe(TOPIC, GROUP)
    for number in range(7):
        LeaseFactory.create(
            topic=TOPIC, consumer_group=GROUP, partition_key=f"k{number}", leased_by=f"w{number % 2}"
        )
    assert list(by_name(subscriber="w1")) == ["k1", "k3", "k5"]
    page = partitions(TOPIC, GROUP, subscriber="w0", limit=3)
    assert ([one.partition for one in page.partitions], page.next) == (["k0", "k2", "k4"], "k4")
    assert list(by_name(subscriber="w0", after="k4")) == ["k6"]


def test_a_long_way_behind_is_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_progress, "COUNTED", 50)
    subscribe(TOPIC, GROUP)
    published(*range(5))
    assert (by_name()["k"].lag.value, by_name()["k"].lag.how) == (2, "at_least")


def test_what_workers_have_in_hand() -> None:
    with Subscription(TOPIC, GROUP, "worker-1", visibility_timeout=60) as subscription:
        publish(TOPIC, 1, key="k", id="first", kind="order.made")
        publish(TOPIC, 2, key="l")
        one, two = sorted(poll_until(subscription, 2), key=lambda one: one.offset)
        found = deliveries(TOPIC, GROUP)
        assert [each.offset for each in found.deliveries] == [one.offset, two.offset]
        first = found.deliveries[0]
        assert (first.id, first.kind, first.key, first.attempt) == ("first", "order.made", "k", 1)
        assert (first.delivered_to, first.started, first.overdue, first.is_orphan) == (
            "worker-1", True, False, False,
        )  # fmt: skip
        assert timedelta() <= first.busy_for < timedelta(minutes=5)
        assert deliveries(TOPIC, GROUP, limit=1).more
        assert deliveries(TOPIC, GROUP, subscriber="worker-2").deliveries == ()
        DeliveryState.objects.filter(message_offset=one.offset).update(invisible_until=1)
        assert deliveries(TOPIC, GROUP, subscriber="worker-1").deliveries[0].overdue
        release(TOPIC, GROUP, partition="l")
        assert recent(TOPIC)[0].details["leases"] == 1
        assert [each.is_orphan for each in deliveries(TOPIC, GROUP).deliveries] == [False, True]
        one.ack()
        assert [each.key for each in deliveries(TOPIC, GROUP).deliveries] == ["l"]


def test_what_is_in_hand_is_found_behind_more_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "OPEN", 2)
    for name, offsets in (("a", (1, 2, 3)), ("b", (4, 5))):
        LeaseFactory.create(topic=TOPIC, consumer_group=GROUP, partition_key=name)
        for offset in offsets:
            DeliveryStateFactory.create(
                topic=TOPIC,
                consumer_group=GROUP,
                partition_key=name,
                message_offset=offset,
                in_flight=name == "b",
            )
    assert [one.offset for one in deliveries(TOPIC, GROUP).deliveries] == [4, 5]
    assert [one.offset for one in deliveries(TOPIC, GROUP, subscriber="worker-1").deliveries] == [4, 5]
    assert deliveries(TOPIC, GROUP, subscriber="worker-2").deliveries == ()


def test_what_cannot_be_asked() -> None:
    with pytest.raises(NotRegistered):
        partitions(TOPIC, "nobody")
    subscribe(TOPIC, GROUP)
    wrongs: list[dict[str, Any]] = [
        {"limit": 0}, {"limit": 201}, {"partition": ""}, {"partition": "k\n"}, {"subscriber": ""},
    ]  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            partitions(TOPIC, GROUP, **wrong)
    with pytest.raises(TypeError, match="after"):
        partitions(TOPIC, GROUP, after=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="limit"):
        deliveries(TOPIC, GROUP, limit=1_001)
    assert deliveries(TOPIC, "nobody").deliveries == ()
