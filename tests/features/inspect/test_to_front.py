"""``send_to_front`` makes messages the next ones of their keys."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from django.test import override_settings

from django_mqueue import (
    Delivery,
    NotRegistered,
    OutgoingMessage,
    Subscription,
    publish,
    publish_many,
    subscribe,
)
from django_mqueue.inspect import messages, remove, send_to_front
from django_mqueue.models import Message, PartitionLease
from django_mqueue.protocol import fetching
from tests.support.fixtures import with_settings
from tests.support.processes import database_ms
from tests.support.subscribers import (
    QUICK,
    consume,
    engine_of,
    in_log,
    poll_until,
    settle_and_collect,
    with_state,
)
from tests.support.transactions import wait_until

from .scene import GROUP, TOPIC, one_of_each, published, scheduled

pytestmark = pytest.mark.django_db(transaction=True)


quick = with_settings(MQUEUE={**QUICK, "GC_INTERVAL": 3600})


def one_by_one(subscription: Subscription, count: int) -> list[Any]:
    """Return payloads in the order of delivery. Each message is acked before the next poll."""
    got: list[Delivery] = []

    def one_more() -> bool:
        deliveries = subscription.poll(1)
        for delivery in deliveries:
            delivery.ack()
        got.extend(deliveries)
        return bool(deliveries)

    while len(got) < count:
        wait_until(one_more, f"message {len(got) + 1} of {count}", every=0.001)
    return [delivery.payload for delivery in got]


def test_what_is_pending_comes_before_all_others() -> None:
    published(*range(10))
    subscribe(TOPIC, GROUP)
    assert send_to_front(TOPIC, group=GROUP, filter=lambda m: m.payload in (7, 4), dry_run=True) == 2
    assert send_to_front(TOPIC, group=GROUP, filter=lambda m: m.payload in (7, 4)) == 2
    with Subscription(TOPIC, GROUP, batch_size=1) as subscription:
        assert one_by_one(subscription, 10) == [4, 7, 0, 1, 2, 3, 5, 6, 8, 9]
        settle_and_collect(subscription)
    assert in_log(TOPIC) == with_state(TOPIC, GROUP) == []


def test_it_is_a_first_attempt() -> None:
    published("a", "b")
    subscribe(TOPIC, GROUP)
    send_to_front(TOPIC, group=GROUP, filter=lambda m: m.payload == "b")
    (message,) = messages(TOPIC, group=GROUP, status="waiting")
    assert (message.payload, message.attempts, message.failures, message.delivered_at) == ("b", 0, 0, None)
    with Subscription(TOPIC, GROUP, max_attempts=2) as subscription:
        first, second = poll_until(subscription, 2)
        assert (first.payload, first.attempt, second.attempt) == ("a", 1, 1)
        second.nack()
        (again,) = poll_until(subscription, 1)
        assert (again.payload, again.attempt) == ("b", 2)


def test_a_message_that_came_back_from_a_long_wait_keeps_what_it_has_been_through() -> None:
    subscribe(TOPIC, GROUP)
    (offset,) = published("again", group=GROUP)
    row = Message.objects.get(offset=offset)
    retry = {
        "id": "mine",
        "count": 2,
        "failures": 2,
        "errors": [{"at": 1, "attempt": 2, "by": "w", "error": "no"}],
    }
    Message.objects.filter(offset=offset).update(
        metadata={**row.metadata, "retry": retry}, original_id="mine"
    )
    assert send_to_front(TOPIC, group=GROUP, id="mine") == 1
    with Subscription(TOPIC, GROUP) as subscription:
        (delivery,) = poll_until(subscription, 1)
        assert (delivery.attempt, delivery.last_error, delivery.status.failures) == (3, "no", 2)


@pytest.mark.parametrize("strict", [False, True])
def test_a_running_worker_finds_out(strict: bool) -> None:
    """Strict order has priority: only the wait for a retry ends."""
    with Subscription(TOPIC, GROUP, batch_size=1, strict=strict) as subscription:
        published(*range(200))
        (first,) = poll_until(subscription, 1)
        first.nack(delay=200)
        if not strict:
            assert one_by_one(subscription, 3) == [1, 2, 3]
        assert send_to_front(TOPIC, group=GROUP, filter=lambda m: m.payload in (0, 150)) == 2
        wait_until(lambda: knows(subscription), "it has looked at its group")
        got = one_by_one(subscription, 200 if strict else 197)
    assert got == (list(range(200)) if strict else [0, 150, *[n for n in range(4, 200) if n != 150]])


def knows(subscription: Subscription) -> bool:
    engine_of(subscription).tick()
    state = engine_of(subscription).state
    return bool(state.stale_waiting) or any(
        due == 1 for p in state.partitions.values() for due, _ in p.waiting
    )


def test_without_a_look_at_the_group_a_worker_delivers_each_once() -> None:
    """The worker tries to claim them as undelivered, gets none of them, and reads them again."""
    with (
        override_settings(MQUEUE={**QUICK, "DISCOVERY_INTERVAL": 600}),
        Subscription(TOPIC, GROUP) as subscription,
    ):
        published(*range(20))
        engine = engine_of(subscription)
        engine.tick()
        engine.tailer.tick()
        engine.tick()
        assert send_to_front(TOPIC, group=GROUP, filter=lambda m: m.payload >= 15) == 5
        got = consume(subscription, 20)
        assert sorted(d.payload for d in got) == list(range(20))
        assert {d.attempt for d in got} == {1}


@pytest.mark.parametrize("strict", [False, True])
def test_more_than_memory_holds(strict: bool) -> None:
    """A new worker gets 300 messages of four keys, after the last hundred were sent to the front.

    In strict order it gets them by offset. Otherwise the hundred are first.
    """
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n % 4}") for n in range(300)])
    subscribe(TOPIC, GROUP)
    assert send_to_front(TOPIC, group=GROUP, filter=lambda m: m.payload >= 200) == 100
    with Subscription(TOPIC, GROUP, batch_size=1, strict=strict) as subscription:
        got = one_by_one(subscription, 300)
    for key in range(4):
        mine = [n for n in got if n % 4 == key]
        all_in_order = sorted(mine)
        assert mine == (all_in_order if strict else all_in_order[50:] + all_in_order[:50])


def test_no_more_are_out_at_once_than_before() -> None:
    """The worker already knew the message at the front as undelivered.

    It does not count it as a message that came back.
    """
    published(*range(6))
    subscribe(TOPIC, GROUP)
    with Subscription(TOPIC, GROUP, batch_size=2) as subscription:
        engine_of(subscription).tick()
        send_to_front(TOPIC, group=GROUP, filter=lambda m: m.payload == 0)
        wait_until(lambda: knows(subscription), "it has looked at its group")
        got = [d.payload for _ in range(6) for d in subscription.poll(1)]
        assert got == [0, 1]


def test_in_strict_order_what_was_not_read_yet_comes_first() -> None:
    """Memory holds fifty messages of each of three keys. The worker reads more of one key at a time."""
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n % 3}") for n in range(159)])
    subscribe(TOPIC, GROUP)
    assert send_to_front(TOPIC, group=GROUP, filter=lambda m: m.payload >= 156) == 3
    with (
        mock.patch.object(fetching, "PER_STATEMENT", 1),
        Subscription(TOPIC, GROUP, batch_size=1, strict=True) as subscription,
    ):
        got: list[int] = []

        def three_at_once() -> bool:
            deliveries = subscription.poll(3)
            for delivery in deliveries:
                delivery.ack()
                got.append(delivery.payload)
            return len(got) >= 159

        wait_until(three_at_once, "all of them", every=0.001)
    for key in range(3):
        assert [n for n in got if n % 3 == key] == list(range(key, 159, 3))


def test_what_is_scheduled_is_due_now() -> None:
    one_of_each()
    scheduled("mine", group=GROUP)
    assert send_to_front(TOPIC, group=GROUP, status="scheduled") == 1
    now = database_ms()
    due = {m.payload: m.available_at.timestamp() * 1000 <= now for m in messages(TOPIC, status="scheduled")}
    assert due == {"tomorrow": False, "mine": True}
    assert send_to_front(TOPIC, group=None, status="scheduled", id="later-tomorrow") == 1
    assert all(m.available_at.timestamp() * 1000 <= now + 60_000 for m in messages(TOPIC, status="scheduled"))


def test_a_message_for_tomorrow_comes_now_and_one_is_never_sent() -> None:
    """One scheduled message is delivered now, and another is removed.

    A third waits two hours for its retry. It is delivered at once as its second attempt.
    """
    with Subscription(TOPIC, GROUP, max_attempts=5) as subscription:
        for id in ("tomorrow", "never"):
            publish(TOPIC, id, key="k", id=id, delay=86_400)
        publish(TOPIC, "long", key="k", id="long")
        poll_until(subscription, 1)[0].nack(delay=7_200, error="not for hours")
        found = {m.id: m for m in messages(TOPIC, group=GROUP, status="scheduled")}
        assert set(found) == {"tomorrow", "never", "long"}
        assert (found["long"].attempts, [e.error for e in found["long"].errors]) == (1, ["not for hours"])
        assert remove(TOPIC, group=None, id="never") == 1
        assert send_to_front(TOPIC, group=None, id="tomorrow") == 1
        assert send_to_front(TOPIC, group=GROUP, id="long") == 1
        got = {d.payload: d.attempt for d in consume(subscription, 2)}
    assert got == {"tomorrow": 1, "long": 2}
    assert messages(TOPIC, status="scheduled").messages == []


def test_where_nobody_was_yet_it_is_found_among_what_waits() -> None:
    published(1, key="new")
    subscribe(TOPIC, GROUP)
    send_to_front(TOPIC, group=GROUP)
    assert [m.payload for m in messages(TOPIC, group=GROUP, status="waiting")] == [1]
    lease = PartitionLease.objects.get()
    assert (lease.partition_key, lease.holder) == ("new", "")


def test_of_all_groups() -> None:
    published(1)
    for group in (GROUP, "stock"):
        subscribe(TOPIC, group)
    assert send_to_front(TOPIC, group=None) == 2


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        ({"group": "nobody"}, NotRegistered, "nobody"),
        (
            {"group": GROUP, "status": "dead"},
            ValueError,
            "status must be one of waiting, pending, scheduled,",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(asked: dict[str, Any], error: type[Exception], text: str) -> None:
    subscribe(TOPIC, GROUP)
    with pytest.raises(error, match=text):
        send_to_front(TOPIC, **asked)
