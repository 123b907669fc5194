"""Garbage collection and unsubscribing cost in proportion to what they delete. No rows of unused keys remain."""

from __future__ import annotations

import re

import pytest
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe, unsubscribe
from django_mqueue.models import DeliveryState, Offset, PartitionLease
from django_mqueue.protocol.retention.garbage_collection import PAGE, Collector
from tests.support.statements import Cost, counted
from tests.support.subscribers import QUICK, consume, in_log, make_idle, settle
from tests.support.transactions import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"


def assert_linear(few: Cost, many: Cost, factor: int) -> None:
    """Assert that both runs send equally many statements, and that the rows read grow linearly.

    No statement has a long chain of OR: MariaDB plans it in quadratic time without reading any row.
    """
    assert many.count == few.count, f"{few}\n{many}"
    assert many.rows <= 2 * factor * few.rows, f"{few}\n{many}"
    for sql in many.statements:
        assert len(re.findall(r"\bOR\b", sql)) < 5, f"a long chain of OR: {sql[:300]}"


def done_by_two_groups(count: int) -> None:
    """Publish ``count`` messages in half as many partitions. Both groups ack them, and they settle."""
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n % (count // 2)}") for n in range(count)])
    for group in ("a", "b"):
        with Subscription(TOPIC, group) as subscription:
            got = 0

            def all_came() -> bool:
                nonlocal got
                deliveries = subscription.poll(100)
                subscription.ack(deliveries)
                got += len(deliveries)
                return got == count

            wait_until(all_came, "all is done", every=0.001)
            settle(subscription)


@override_settings(MQUEUE={**QUICK, "GC_INTERVAL": 3600})
def test_a_page_of_collection_costs_by_what_it_deletes() -> None:
    """Collect a tenth of a page and a whole page, for two groups. Both take the same number of statements.

    The number of rows read grows linearly.
    """
    subscribe(TOPIC, "a")
    subscribe(TOPIC, "b")
    costs = []
    for count in (PAGE // 10, PAGE):
        done_by_two_groups(count)
        assert len(in_log(TOPIC)) == count
        with counted() as cost:
            Collector("default", TOPIC).collect_page()
        assert in_log(TOPIC) == []
        assert not DeliveryState.objects.exists()
        costs.append(cost)
    few, many = costs
    assert_linear(few, many, 10)


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_unsubscribing_costs_by_what_it_deletes() -> None:
    """Removing the state of 900 messages takes as many statements as that of 100 messages."""
    costs = []
    for count in (100, 900):
        publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n % 50}") for n in range(count - len(in_log(TOPIC)))])
        with Subscription(TOPIC, "a") as subscription:
            consume(subscription, count)
        with counted() as cost:
            unsubscribe(TOPIC, "a")
        assert not DeliveryState.objects.exists()
        costs.append(cost)
    few, many = costs
    assert_linear(few, many, 9)


@override_settings(MQUEUE=QUICK)
def test_nothing_is_kept_of_keys_that_were_used_once() -> None:
    """Without retention, messages are collected while their partitions are still leased.

    The worker that gives up a lease deletes the remaining rows of the partition.
    """
    with Subscription(TOPIC, "a") as subscription:
        for n in range(30):
            publish(TOPIC, n, key=f"once-{n}")
        consume(subscription, 30)

        def is_gone() -> bool:
            assert subscription.poll() == []
            if not in_log(TOPIC):
                make_idle(subscription)
            positions = Offset.objects.filter(consumer_group="a").exclude(partition_key="")
            return not (in_log(TOPIC) or positions.exists() or PartitionLease.objects.exists())

        wait_until(is_gone, "messages, leases and positions are gone")
        assert Offset.objects.filter(consumer_group="a", partition_key="").exists()
