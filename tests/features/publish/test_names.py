"""Names that differ in any way are different or refused, but never merged."""

from __future__ import annotations

import unicodedata

import pytest
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe, unsubscribe
from django_mqueue.models import Message, PartitionLease, SubscriberHeartbeat
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume, consume_rest, in_log, poll_until, settle_and_collect

pytestmark = pytest.mark.django_db(transaction=True)

ALIKE = [
    "order",
    "Order",
    "ORDER",
    "ordér",
    unicodedata.normalize("NFD", "ordér"),
    "ördér",
    "orde\u0433",
    "order\u200b",
    "ord er",
    "straße",
    "strasse",
    "İ",
    "i",
    "\u0131",
    "ﬁ",
    "fi",
    "\uff11",
    "1",
    "01",
    "1.0",
    "🦉",
    "🦊",
    "か",
    "が",
    "カ",
    "null",
    "%",
    "_",
    "a'b",
    'a"b',
    "a\\b",
    "a`b",
    "a%sb",
]
"""Each name equals another one under some collation, some encoding or some careless quoting."""

PADDED = ["order ", " order", "order\t", "order\u3000", "order\n", "order\u00a0", "order\x00", " 0001"]


quick = with_settings(MQUEUE=QUICK)


def test_the_names_are_different_to_python() -> None:
    assert len(set(ALIKE)) == len(ALIKE)


def test_keys_that_look_alike_are_different_partitions() -> None:
    """The same id is stored under each key, and each message is delivered with its own key."""
    answers = publish_many("orders", [OutgoingMessage(key, key=key, id="same") for key in ALIKE])
    assert all(answer.created for answer in answers)
    with Subscription("orders", group="billing") as subscription:
        got = consume(subscription, len(ALIKE))
        assert sorted((d.key or "", d.payload) for d in got) == sorted((key, key) for key in ALIKE)
        assert set(PartitionLease.objects.values_list("partition_key", flat=True)) == set(ALIKE)
        settle_and_collect(subscription)
    assert in_log("orders") == []


@pytest.mark.parametrize("many", [False, True])
def test_ids_that_look_alike_are_different_messages(many: bool) -> None:
    """No id is a duplicate of another id, and each is a duplicate of itself."""
    if many:
        first = publish_many("orders", [OutgoingMessage(1, key="k", id=id) for id in ALIKE])
        second = publish_many("orders", [OutgoingMessage(1, key="k", id=id) for id in ALIKE])
    else:
        first = [publish("orders", 1, key="k", id=id) for id in ALIKE]
        second = [publish("orders", 1, key="k", id=id) for id in ALIKE]
    assert all(answer.created for answer in first)
    assert not any(answer.created for answer in second)
    assert [answer.offset for answer in first] == [answer.offset for answer in second]
    assert set(Message.objects.values_list("message_id", flat=True)) == set(ALIKE)


def test_topics_that_look_alike_are_different_topics() -> None:
    """Each topic keeps its own message until its own group has acked it."""
    for topic in ALIKE:
        assert publish(topic, topic, key="k", id="same").created
    for topic in ALIKE[:6]:
        with Subscription(topic, group="billing") as subscription:
            assert [(d.topic, d.payload) for d in consume(subscription, 1)] == [(topic, topic)]
            settle_and_collect(subscription)
        assert in_log(topic) == []
    assert Message.objects.filter(topic__in=ALIKE).count() == len(ALIKE) - 6


def test_groups_that_look_alike_are_different_groups() -> None:
    """Each group gets every message, and each holds back deletion by itself."""
    groups = ALIKE[:8]
    for group in groups:
        assert subscribe("orders", group)
    publish("orders", 1, key="k")
    for place, group in enumerate(groups):
        with Subscription("orders", group=group, name="worker") as subscription:
            (delivery,) = consume(subscription, 1)
            assert delivery.group == group
            settle_and_collect(subscription)
        assert bool(in_log("orders")) is (place < len(groups) - 1)
    assert unsubscribe("orders", groups[0])
    assert not subscribe("orders", groups[1])


def test_subscribers_that_look_alike_are_different_subscribers() -> None:
    """Two workers whose names differ in case do not fence each other, and share the work."""
    with (
        Subscription("orders", "billing", "Worker") as one,
        Subscription("orders", "billing", "worker") as other,
    ):
        publish_many("orders", [OutgoingMessage(n, key=f"key-{n}") for n in range(10)])
        got = [d.payload for _ in range(20) for member in (one, other) for d in consume_rest(member, polls=1)]
        assert sorted(got) == list(range(10))
        names = SubscriberHeartbeat.objects.filter(deregistered_at=None).values_list(
            "subscriber_name", flat=True
        )
        assert set(names) == {"Worker", "worker"}


@pytest.mark.parametrize("name", PADDED)
def test_names_that_the_server_would_merge_are_refused(name: str) -> None:
    """Both servers ignore blanks at the ends of strings in comparisons, so names with them are refused."""
    publish("order", 1, key="order", id="order")
    for bad in ({"topic": name}, {"key": name}, {"id": name}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            publish(**{"topic": "order", "payload": 1, **bad})  # type: ignore[arg-type]
    for call in (subscribe, unsubscribe, Subscription):
        with pytest.raises(ValueError, match="group"):
            call("order", name)
        with pytest.raises(ValueError, match="topic"):
            call(name, "billing")
    assert Message.objects.count() == 1


def test_the_longest_names_work_throughout() -> None:
    """Publish, consume, dead-letter and collect with the longest names, in characters of four bytes."""
    topic, key, id, group, name = "🦉" * 100, "🦊" * 255, "🐻" * 255, "🐼" * 128, "🐸" * 128
    subscribe(topic, group)
    assert publish(topic, 1, key=key, id=id).created
    assert not publish(topic, 1, key=key, id=id).created
    publish(topic, 2, key=key, id=id[:-1])
    with Subscription(topic, group, name) as subscription:
        first, second = poll_until(subscription, 2)
        assert (first.key, first.id, first.topic, first.group) == (key, id, topic, group)
        first.ack()
        second.reject("no")
        settle_and_collect(subscription)
    assert in_log(topic) == []
    with Subscription(f"{topic}_dlq", group, name) as subscription:
        (dead,) = poll_until(subscription, 1)
        assert (dead.key, dead.id, dead.original_topic, dead.failed_group) == (key, id[:-1], topic, group)
        dead.reject("again")
    with Subscription(f"{topic}_dlq_dlq", group, name) as subscription:
        assert poll_until(subscription, 1)[0].original_topic == f"{topic}_dlq"


def test_a_key_is_no_partition_of_keyless_messages() -> None:
    """No key can have the name of a partition of keyless messages."""
    keys = [f"{n:04d}" for n in range(16)] + ["0", "None", "null"]
    for key in keys:
        publish("orders", "keyed", key=key)
    publish_many("orders", ["keyless"] * 100)
    with Subscription("orders", group="billing", batch_size=1000) as subscription:
        got = consume(subscription, 100 + len(keys))
    assert {d.key for d in got if d.payload == "keyed"} == set(keys)
    assert {d.key for d in got if d.payload == "keyless"} == {None}


def test_keyless_messages_are_spread_as_the_setting_says() -> None:
    """Keyless messages use sixteen partitions by default, or as many as the topic's setting says."""
    with override_settings(MQUEUE={"SPREAD": 3, "TOPICS": {"payments": {"SPREAD": 1}}}):
        publish_many("orders", range(60))
        publish_many("payments", range(20))
    publish_many("visits", range(400))
    partitions = {
        topic: Message.objects.filter(topic=topic).values("partition_key").distinct().count()
        for topic in ("orders", "payments", "visits")
    }
    assert partitions == {"orders": 3, "payments": 1, "visits": 16}
