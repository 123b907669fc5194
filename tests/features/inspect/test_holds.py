"""Retention blockers, and the subscribers of a group with their work."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from django_mqueue import Subscription, pause, publish, subscribe
from django_mqueue.inspect import Hold, delay, holds, subscribers
from django_mqueue.models import Message, Offset, PartitionLease, SubscriberHeartbeat
from django_mqueue.policy.names import ACTIONS_TOPIC
from django_mqueue.service.actions import recent
from django_mqueue.spark.database import following
from django_mqueue.stats.groups import members
from django_mqueue.store.queries import message_pages
from tests.factories import HeartbeatFactory, LeaseFactory
from tests.support.processes import database_ms
from tests.support.subscribers import poll_until, settle

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"


def publish_long_ago(count: int = 1, hours: int = 3) -> list[int]:
    offsets = [publish(TOPIC, number, key="k").offset for number in range(count)]
    Message.objects.update(published_at=database_ms() - hours * 3_600_000)
    return offsets


def the_hold() -> Hold:
    (found,) = holds(TOPIC)
    return found


def test_an_empty_topic_holds_nothing() -> None:
    assert holds(TOPIC) == []


def test_nobody_is_registered() -> None:
    (offset,) = publish_long_ago()
    found = the_hold()
    assert (found.reason, found.group, found.offset) == ("no_group", None, offset)
    assert timedelta(hours=1.9) < found.overdue < timedelta(hours=2.1)


def test_its_time_has_not_come() -> None:
    subscribe(TOPIC, GROUP)
    publish(TOPIC, 1)
    found = the_hold()
    assert (found.reason, found.group) == ("retention", None)
    assert found.overdue < timedelta(0)
    with override_settings(MQUEUE={"TOPICS": {TOPIC: {"RETENTION": 0}}}):
        assert the_hold().reason == "no_worker"


def test_nobody_works_for_the_group() -> None:
    publish_long_ago()
    subscribe(TOPIC, GROUP)
    found = the_hold()
    assert (found.reason, found.group, found.key, found.watermark, found.since) == (
        "no_worker",
        GROUP,
        "k",
        0,
        None,
    )
    HeartbeatFactory.create(consumer_group=GROUP, topic=TOPIC, heartbeat_at=1_700_000_000_000)
    found = the_hold()
    assert found.since is not None
    assert found.since.timestamp() == 1_700_000_000


def test_dead_letters_have_no_retention() -> None:
    """They stay, although a group has acknowledged them: nothing holds them back."""
    with Subscription(TOPIC, GROUP) as subscription:
        publish(TOPIC, 1)
        poll_until(subscription, 1)[0].reject("no")
    Message.objects.update(published_at=database_ms() - 30 * 86_400_000)
    with Subscription(f"{TOPIC}_dlq", "alarm") as subscription:
        poll_until(subscription, 1)[0].ack()
        settle(subscription)
    assert holds(f"{TOPIC}_dlq") == []


def test_the_group_is_paused() -> None:
    publish_long_ago()
    subscribe(TOPIC, GROUP)
    HeartbeatFactory.create(consumer_group=GROUP, topic=TOPIC)
    pause(TOPIC, GROUP)
    found = the_hold()
    assert (found.reason, found.group) == ("paused", GROUP)
    assert found.since == recent(TOPIC)[0].at
    delay(TOPIC, found.since + timedelta(hours=1), group=GROUP)
    assert the_hold().since == found.since, "another change of the group is no pause"
    Message.objects.filter(topic=ACTIONS_TOPIC).delete()
    assert the_hold().since is None, "no record says when the pause began"


def test_a_group_that_reads_the_log_needs_no_worker() -> None:
    publish_long_ago()
    following.follow(TOPIC, "archive", 0, 0, using="default")
    assert the_hold().reason == "pending"


def test_a_message_is_not_delivered_then_in_flight_then_waits() -> None:
    publish_long_ago(2)
    subscribe(TOPIC, GROUP)
    with Subscription(TOPIC, GROUP) as subscription:
        first, second = poll_until(subscription, 2)
        assert the_hold().reason == "in_flight"
        assert the_hold().since is not None
        first.nack(delay=100, error="no")
        assert (the_hold().reason, the_hold().offset) == ("waiting", first.offset)
        second.ack()
        assert the_hold().reason == "waiting"
        subscription._subscriber = None  # Its lease and its waiting message stay as they are.
    publish(TOPIC, 3, key="other")
    Message.objects.update(published_at=database_ms() - 3 * 3_600_000)
    Message.objects.filter(partition_key="k").delete()
    assert (the_hold().reason, the_hold().key) == ("pending", "other")


def test_all_is_done_but_the_watermark_has_not_come_to_it_and_then_it_has() -> None:
    publish_long_ago()
    subscribe(TOPIC, GROUP)
    with Subscription(TOPIC, GROUP) as subscription:
        (delivery,) = poll_until(subscription, 1)
        settle(subscription)
        delivery.ack()
        assert the_hold().reason == "settling"
        subscription._subscriber = None
    Offset.objects.filter(consumer_group=GROUP, partition_key="").update(offset_acked=delivery.offset)
    assert (the_hold().reason, the_hold().group) == ("collecting", None)
    SubscriberHeartbeat.objects.all().delete()
    assert the_hold().reason == "no_collector"


def test_each_group_with_the_oldest_message_that_it_holds() -> None:
    offsets = publish_long_ago(3)
    for group in ("a", "b", "done"):
        subscribe(TOPIC, group)
    offsets.append(publish(TOPIC, "for b", key="x", group="b").offset)
    Message.objects.update(published_at=database_ms() - 3 * 3_600_000)
    Offset.objects.filter(consumer_group="a", partition_key="").update(offset_acked=offsets[1])
    Offset.objects.filter(consumer_group="b", partition_key="").update(offset_acked=offsets[2])
    Offset.objects.filter(consumer_group="done", partition_key="").update(offset_acked=offsets[2])
    assert [(one.group, one.key, one.offset) for one in holds(TOPIC)] == [
        ("a", "k", offsets[2]),
        ("b", "x", offsets[3]),
    ]


def test_a_live_member_is_found_among_many_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MEMBERS", 2)
    for name in ("a", "b", "c"):
        HeartbeatFactory.create(subscriber_name=name, deregistered_at=None if name == "c" else database_ms())
    assert [(one.name, one.status) for one in subscribers("orders", "billing")] == [
        ("a", "left"),
        ("c", "alive"),
    ]


def test_members_with_what_they_have() -> None:
    subscribe(TOPIC, GROUP)
    for number in range(3):
        publish(TOPIC, number, key=f"k{number}")
    with Subscription(TOPIC, GROUP, "gone"):
        pass
    HeartbeatFactory.create(
        consumer_group=GROUP,
        topic=TOPIC,
        subscriber_name="silent",
        incarnation="s",
        heartbeat_at=database_ms() - 3_600_000,
    )
    LeaseFactory.create(
        consumer_group=GROUP, topic=TOPIC, partition_key="old", leased_by="silent", holder="s"
    )
    with Subscription(TOPIC, GROUP, "busy") as subscription:
        deliveries = poll_until(subscription, 3)
        deliveries[0].ack()
        found = {one.name: one for one in subscribers(TOPIC, GROUP)}
        held = PartitionLease.objects.filter(leased_by="busy").count()
    assert list(found) == ["busy", "gone", "silent"]
    busy, gone, silent = found.values()
    assert (busy.status, busy.partitions, busy.in_flight.value, busy.in_flight.how) == (
        "alive",
        held,
        2,
        "exact",
    )
    assert busy.busy_since is not None
    assert busy.heartbeat_at - timedelta(minutes=1) < busy.busy_since
    assert (gone.status, gone.partitions, gone.busy_since) == ("left", 0, None)
    assert gone.left_at is not None
    assert (silent.status, silent.partitions, silent.in_flight.value) == ("silent", 1, 0)


def test_the_oldest_message_is_deleted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    subscribe(TOPIC, GROUP)
    publish_long_ago()
    monkeypatch.setattr(message_pages, "log_page", lambda *arguments, **options: [])
    assert [one.reason for one in holds(TOPIC)] == ["no_collector"]
