"""``erase`` deletes messages everywhere, whatever groups still need them."""

from __future__ import annotations

import pytest

from django_mqueue import (
    OutgoingMessage,
    StaleDelivery,
    Subscription,
    publish,
    publish_many,
    redrive,
    subscribe,
)
from django_mqueue.browse import sources
from django_mqueue.inspect import ErasedTopic, Inspected, erase, messages
from django_mqueue.models import DeliveryState, Message, Offset
from django_mqueue.service.actions import recent
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume_rest, in_log, poll_until, settle_and_collect
from tests.support.transactions import HeldTransaction

from .scene import GROUP, TOPIC, one_of_each, published

pytestmark = pytest.mark.django_db(transaction=True)


quick = with_settings(MQUEUE={**QUICK, "GC_INTERVAL": 3600})


def test_everything_of_a_key_over_all_topics() -> None:
    subscribe(TOPIC, GROUP)
    published("1", "2", key="ann@example.com")
    publish("mail", "3", key="ann@example.com")
    publish("mail", "later", key="ann@example.com", delay=60)
    publish("mail", "other", key="bob@example.com")
    with Subscription(TOPIC, GROUP) as subscription:
        first, second = poll_until(subscription, 2)
        first.reject("ann@example.com is wrong")
        second.ack()
    assert [one.found for one in erase(key="ann@example.com", dry_run=True)] == [1, 1, 2, 1]
    assert Message.objects.filter(partition_key="ann@example.com").count() == 5
    done = erase(key="ann@example.com", by="alice", why="request 17")
    assert done == [
        ErasedTopic("mail", 1, 1),
        ErasedTopic("mail_scheduled", 1, 1),
        ErasedTopic(TOPIC, 2, 2),
        ErasedTopic(f"{TOPIC}_dlq", 1, 1),
    ]
    assert not Message.objects.filter(partition_key="ann@example.com").exists()
    assert not DeliveryState.objects.filter(partition_key="ann@example.com").exists()
    assert erase(key="ann@example.com") == []
    (newest, *_) = recent("mail")
    assert (newest.action, newest.by, newest.why) == ("erase", "alice", "request 17")
    assert "ann" not in str([one.details for one in recent("mail")]), "the record does not keep the key"
    assert [one.payload for one in messages("mail")] == ["other"]


def test_a_message_in_flight_is_taken_from_its_handler() -> None:
    subscribe(TOPIC, "stock")
    with Subscription(TOPIC, GROUP) as subscription:
        published({"name": "Ann"}, {"name": "Ann"}, key="7")
        first, second = poll_until(subscription, 2)
        assert erase(key="7") == [ErasedTopic(TOPIC, 2, 2, in_flight=2)]
        with pytest.raises(StaleDelivery):
            first.ack()
        with pytest.raises(StaleDelivery):
            second.nack(error="Ann is not there")
        assert not DeliveryState.objects.exists()
        published("next", key="7")
        assert [one.payload for one in consume_rest(subscription)] == ["next"]
        settle_and_collect(subscription)
    with Subscription(TOPIC, "stock") as other:
        assert [one.payload for one in consume_rest(other)] == ["next"]
        settle_and_collect(other)
    assert in_log(TOPIC) == []


def test_by_payload() -> None:
    subscribe(TOPIC, GROUP)
    published({"customer": {"id": 7}}, {"customer": {"id": 8}}, key=None)
    assert [one.deleted for one in erase(payload__customer__id=7)] == [1]
    assert [one.payload for one in messages(TOPIC)] == [{"customer": {"id": 8}}]


def test_a_worker_that_has_read_the_message_does_not_get_it() -> None:
    with Subscription(TOPIC, GROUP, batch_size=1) as subscription:
        published(0, 1, 2)
        (first,) = poll_until(subscription, 1)
        erase(filter=lambda message: message.payload == 1)
        first.ack()
        assert [one.payload for one in consume_rest(subscription)] == [2]
        settle_and_collect(subscription)
    assert in_log(TOPIC) == []
    assert not DeliveryState.objects.exists()


def test_each_status_is_erased() -> None:
    offsets = one_of_each()
    keys = [name for name in offsets if name != "scheduled"]
    for key in keys:
        erase(key=key)
    left = set(Message.objects.filter(topic__startswith=TOPIC).values_list("partition_key", flat=True))
    assert left == {"k"}, "the scheduled message has another key"
    assert not DeliveryState.objects.exists()


def test_what_is_locked_is_reported_as_left() -> None:
    offsets = published("a", "b")
    with HeldTransaction(lambda: list(Message.objects.select_for_update().filter(offset=offsets[0]))):
        assert erase(key="k") == [ErasedTopic(TOPIC, 2, 1, left=1)]
    assert erase(key="k") == [ErasedTopic(TOPIC, 1, 1)]


def test_a_message_that_moves_meanwhile_is_reported_as_left() -> None:
    """The search of the log is over when a dead letter moves there."""
    with Subscription(TOPIC, GROUP) as subscription:
        published("ann")
        poll_until(subscription, 1)[0].reject("no")
    publish(TOPIC, "later", delay=60)

    def is_ann(message: Inspected) -> bool:
        if message.payload == "later":
            redrive(TOPIC)
        return bool(message.payload == "ann")

    assert erase(filter=is_ann) == [ErasedTopic(TOPIC, 1, 1, left=1)]
    assert erase(filter=is_ann) == [ErasedTopic(TOPIC, 1, 1)]


def test_positions_of_the_key_go_with_its_last_message() -> None:
    with Subscription(TOPIC, GROUP) as subscription:
        published("a", key="ann")
        consume_rest(subscription)
        settle_and_collect(subscription)
    erase(key="ann")
    assert Offset.objects.filter(partition_key="ann").count() <= 1


def test_it_needs_a_selection() -> None:
    with pytest.raises(TypeError, match="needs a selection"):
        erase()
    with pytest.raises(TypeError, match="needs a selection"):
        erase(topic=TOPIC)


@pytest.mark.parametrize("argument", ["group", "status", "before", "kind", "offset"])
def test_an_argument_that_would_not_select_messages_is_refused(argument: str) -> None:
    published("1")
    with pytest.raises(TypeError, match=f"erase does not take {argument}: give key"):
        erase(topic=TOPIC, **{argument: GROUP})  # type: ignore[arg-type]
    assert Message.objects.exists()


@pytest.mark.parametrize("dead_letters_have_a_group", [False, True])
def test_all_dead_letters_of_an_id_are_erased(
    monkeypatch: pytest.MonkeyPatch, dead_letters_have_a_group: bool
) -> None:
    """Many keys share the id, more than one statement reads."""
    monkeypatch.setattr(sources, "IDS", 3)
    if dead_letters_have_a_group:
        subscribe(f"{TOPIC}_dlq", "clerk")
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n}", id="welcome") for n in range(7)])
    with Subscription(TOPIC, GROUP) as subscription:
        for delivery in poll_until(subscription, 7):
            delivery.reject("no")
    assert len(messages(TOPIC, group=GROUP, status="dead", id="welcome", limit=100)) == 7
    assert [(one.topic, one.deleted, one.left) for one in erase(id="welcome")] == [
        (TOPIC, 7, 0),
        (f"{TOPIC}_dlq", 7, 0),
    ]
    assert not Message.objects.filter(topic__startswith=TOPIC).exists()


def test_messages_of_a_dead_letter_topic_are_found_by_id_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page ends and continues within each part of the search: redriven messages, then dead letters."""
    monkeypatch.setattr(sources, "IDS", 2)
    dead = f"{TOPIC}_dlq"
    subscribe(dead, "clerk")
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n}", id="welcome") for n in range(5)])
    with Subscription(TOPIC, GROUP) as subscription:
        for delivery in poll_until(subscription, 5):
            delivery.reject("no")
    found, start = [], None
    while True:
        page = messages(dead, id="welcome", limit=2, start=start)
        found += [one.payload for one in page]
        if (start := page.next) is None:
            break
    assert sorted(found) == list(range(5))


def test_dead_letters_that_a_group_consumes_are_found_once() -> None:
    subscribe(f"{TOPIC}_dlq", "clerk")
    with Subscription(TOPIC, GROUP) as subscription:
        published("1")
        poll_until(subscription, 1)[0].reject("no")
    assert [(one.topic, one.found) for one in erase(key="k", dry_run=True)] == [
        (TOPIC, 1),
        (f"{TOPIC}_dlq", 1),
    ]
    assert [(one.topic, one.deleted, one.left) for one in erase(key="k")] == [
        (TOPIC, 1, 0),
        (f"{TOPIC}_dlq", 1, 0),
    ]
    assert not Message.objects.filter(partition_key="k").exists()
