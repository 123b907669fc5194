"""A group is unsubscribed and subscribed again while its workers run. The new registration starts with no old state."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest
from django.test import override_settings

from django_mqueue import (
    Delivery,
    OutgoingMessage,
    StaleDelivery,
    Subscription,
    publish,
    publish_many,
    subscribe,
    unsubscribe,
)
from django_mqueue.models import DeliveryState, Offset
from tests.support.subscribers import QUICK, collect, consume, consume_rest, in_log, poll_until, settle
from tests.support.transactions import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"
KEPT = {**QUICK, "RETENTION": 3600}


def subscribe_again() -> None:
    """Unsubscribe and subscribe the group between two polls. No worker sees the group unregistered."""
    assert unsubscribe(TOPIC, GROUP)
    assert subscribe(TOPIC, GROUP)


@override_settings(MQUEUE=KEPT)
def test_a_worker_with_memories_of_an_earlier_life_delivers_everything_again() -> None:
    """A worker has acked sixty messages and moved its watermarks.

    Its group is subscribed again without its knowledge.
    """
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n % 6}") for n in range(60)])
    with Subscription(TOPIC, GROUP) as worker:
        consume(worker, 60)
        settle(worker)
        subscribe_again()
        publish(TOPIC, "new", key="k3")
        again = consume(worker, 61)
        assert {d.payload for d in again} == {*range(60), "new"}
        assert {d.attempt for d in again} == {1}
        settle(worker)
        assert consume_rest(worker) == []


@override_settings(MQUEUE=KEPT)
def test_partitions_that_come_back_to_their_owner_of_an_earlier_life_are_read_anew() -> None:
    """A has six partitions in memory. The group is subscribed again. B joins, handles some messages, and leaves.

    A then leases partitions that it knew from the first registration. Its old watermarks must not cover messages of the
    second registration: collection deletes only messages that were delivered in it.
    """
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n % 6}") for n in range(60)])
    got: list[object] = []

    def ack(deliveries: list[Delivery]) -> list[Delivery]:
        for delivery in deliveries:
            delivery.ack()
            got.append(delivery.payload)
        return deliveries

    with Subscription(TOPIC, GROUP, name="a", batch_size=1) as a:
        consume(a, 60)
        settle(a)
        subscribe_again()
        with Subscription(TOPIC, GROUP, name="b", batch_size=1) as b:
            wait_until(lambda: (ack(a.poll(1)), ack(b.poll(1)))[1], "b has some of it")
            settle(b)
        publish_many(TOPIC, [OutgoingMessage("last", key=f"k{n}") for n in range(6)])
        wait_until(lambda: ack(a.poll()) and got.count("last") == 6, "what came last")
        settle(a)
        with override_settings(MQUEUE=QUICK):
            collect(TOPIC)
        assert consume_rest(a) == []
    assert in_log(TOPIC) == []
    assert Counter(got) == Counter([*range(60), *["last"] * 6])


@override_settings(MQUEUE={**KEPT, "DISCOVERY_INTERVAL": 60})
def test_before_it_has_noticed_a_worker_of_an_earlier_life_can_do_nothing() -> None:
    """A worker reads its group's registration once a minute.

    Until then it claims nothing, acks nothing and moves no watermark.
    """
    publish(f"{TOPIC}-before", 0)  # Without an earlier message, a moved watermark would stay hidden.
    publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(5)])
    with ExitStack() as stack:
        worker = stack.enter_context(Subscription(TOPIC, GROUP, batch_size=5))
        done, *held = poll_until(worker, 5)
        done.ack()
        subscribe_again()
        with pytest.raises(StaleDelivery):
            worker.ack(held)
        publish(TOPIC, "new", key="k")
        settle(worker)
        assert consume_rest(worker, due=False) == []
        assert not DeliveryState.objects.exists()
        assert not Offset.objects.filter(consumer_group=GROUP).exclude(partition_key="").exists()
    with Subscription(TOPIC, GROUP) as heir:
        assert [d.payload for d in consume(heir, 6)] == [0, 1, 2, 3, 4, "new"]
