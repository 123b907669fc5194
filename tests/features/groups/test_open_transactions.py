"""Garbage collection and registration do not wait for publishers that hold transactions open."""

from __future__ import annotations

import pytest

from django_mqueue import Subscription, publish, subscribe, unsubscribe
from django_mqueue.service.registration import Start
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, collect, consume, in_log, poll_until, settle, settle_and_collect
from tests.support.transactions import Background, HeldTransaction

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"


quick = with_settings(MQUEUE=QUICK)


def test_collection_does_not_wait_for_a_publisher_of_the_same_partition() -> None:
    """Collection deletes the acked message while the publisher's transaction is open.

    The publisher's own message is delivered later.
    """
    subscribe(TOPIC, GROUP)
    with Subscription(TOPIC, group=GROUP) as subscription:
        publish(TOPIC, 1, key="k")
        consume(subscription, 1)
        settle(subscription)
    with HeldTransaction(lambda: publish(TOPIC, 2, key="k")) as publisher:
        with Background(lambda: collect(TOPIC)) as collection:
            collection.result()
        assert in_log(TOPIC) == []
        publisher.commit()
    with Subscription(TOPIC, group=GROUP) as subscription:
        assert [d.payload for d in consume(subscription, 1)] == [2]
        settle_and_collect(subscription)
    assert in_log(TOPIC) == []


@pytest.mark.parametrize("start", ["earliest", "latest", 1])
def test_registration_does_not_wait_for_a_publisher(start: Start) -> None:
    """A group registers and unsubscribes while a transaction is open.

    Once subscribed again, it gets what the transaction commits.
    """
    publish(TOPIC, 1, key="k")

    def come_and_go() -> tuple[bool, bool]:
        return subscribe(TOPIC, GROUP, start=start), unsubscribe(TOPIC, GROUP)

    with HeldTransaction(lambda: publish(TOPIC, 2, key="k")) as publisher:
        with Background(come_and_go) as registration:
            assert registration.result() == (True, True)
        subscribe(TOPIC, GROUP, start=start)
        publisher.commit()
    with Subscription(TOPIC, group=GROUP) as subscription:
        got = poll_until(subscription, lambda deliveries: 2 in [d.payload for d in deliveries])
    assert [d.payload for d in got][-1] == 2
