"""``publish(group=…)`` publishes a message for one consumer group alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from django_mqueue import (
    DuplicateMessage,
    NotRegistered,
    OutgoingMessage,
    Subscription,
    publish,
    publish_many,
    subscribe,
    unsubscribe,
)
from django_mqueue.models import DeliveryState, Message
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume, consume_rest, settle_and_collect

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"


@pytest.fixture(autouse=True)
def groups() -> None:
    for group in ("billing", "stock"):
        subscribe(TOPIC, group)


quick = with_settings(MQUEUE=QUICK)


def got(group: str, count: int) -> list[Any]:
    with Subscription(TOPIC, group) as subscription:
        payloads = [delivery.payload for delivery in consume(subscription, count)]
        return payloads + [delivery.payload for delivery in consume_rest(subscription)]


@pytest.mark.parametrize("key", ["k", None])
def test_only_that_group_is_given_it(key: str | None) -> None:
    publish(TOPIC, "for both", key=key)
    publish(TOPIC, "for billing", key=key, group="billing")
    publish(TOPIC, "for both again", key=key)
    assert sorted(got("billing", 3)) == ["for billing", "for both", "for both again"]
    assert sorted(got("stock", 2)) == ["for both", "for both again"]


def test_a_group_that_runs_is_not_told_of_anothers() -> None:
    publish(TOPIC, 0, key="k")
    with Subscription(TOPIC, "stock") as stock:
        consume(stock, 1)
        publish(TOPIC, 1, key="k", group="billing")
        publish(TOPIC, 2, key="k")
        assert [delivery.payload for delivery in consume(stock, 1)] == [2]
        assert consume_rest(stock) == []


def test_it_is_kept_for_that_group_and_pins_nothing_of_the_others() -> None:
    """The watermarks of other groups pass it. It is deleted when its own group is done, and not before."""
    publish(TOPIC, "for billing", key="k", group="billing")
    publish(TOPIC, "for both", key="k")
    with Subscription(TOPIC, "stock") as stock:
        consume(stock, 1)
        settle_and_collect(stock)
        assert Message.objects.filter(topic=TOPIC).count() == 2
        with Subscription(TOPIC, "billing") as billing:
            assert [delivery.payload for delivery in consume(billing, 2)] == ["for billing", "for both"]
            settle_and_collect(billing)
            settle_and_collect(stock)
    assert not Message.objects.filter(topic=TOPIC).exists()
    assert not DeliveryState.objects.exists()


def test_a_group_that_joins_later_is_not_given_it() -> None:
    publish(TOPIC, "for billing", group="billing")
    publish(TOPIC, "for all")
    subscribe(TOPIC, "late")
    assert got("late", 1) == ["for all"]


def test_with_strict_order_it_has_its_place() -> None:
    for number in range(6):
        publish(TOPIC, number, key="k", group="billing" if number % 2 else None)
    with Subscription(TOPIC, "billing", strict=True) as subscription:
        assert [delivery.payload for delivery in consume(subscription, 6)] == [0, 1, 2, 3, 4, 5]
    with Subscription(TOPIC, "stock", strict=True) as subscription:
        assert [delivery.payload for delivery in consume(subscription, 3)] == [0, 2, 4]


def test_an_id_is_unique_among_those_for_one_group() -> None:
    first = publish(TOPIC, 1, id="x", key="k", group="billing")
    assert publish(TOPIC, 2, id="x", key="k", group="billing").offset == first.offset
    assert publish(TOPIC, 3, id="x", key="k", group="stock").created
    assert publish(TOPIC, 4, id="x", key="k").created
    with pytest.raises(DuplicateMessage):
        publish(TOPIC, 5, id="x", key="k", group="billing", on_duplicate="error")
    many = [
        OutgoingMessage(n, key="k", id="x", group=group) for n, group in enumerate(["billing", None, "stock"])
    ]
    assert [published.created for published in publish_many(TOPIC, many)] == [False, False, False]
    many = [
        OutgoingMessage(n, key="k", id="y", group=group)
        for n, group in enumerate(["billing", None, "billing"])
    ]
    assert [published.created for published in publish_many(TOPIC, many)] == [True, True, False]


def test_many_for_several_groups() -> None:
    published = publish_many(
        TOPIC, [OutgoingMessage(n, group=("billing", "stock", None)[n % 3]) for n in range(1200)]
    )
    assert all(one.created for one in published)
    assert len(got("billing", 800)) == 800
    assert len(got("stock", 800)) == 800


@pytest.mark.parametrize("one", [True, False])
def test_a_group_that_is_not_registered_is_an_error_that_names_it(one: bool) -> None:
    """Nothing is stored, and the caller's transaction continues."""
    unsubscribe(TOPIC, "stock")
    with transaction.atomic():
        publish(TOPIC, "before", key="k")
        with pytest.raises(NotRegistered, match="group 'stock' is not registered for topic 'orders'"):
            send(one)
        publish(TOPIC, "after", key="k")
    left = [bytes(row.payload) for row in Message.objects.filter(topic=TOPIC).order_by("offset")]
    assert left == [b'"before"', b'"after"']


def send(one: bool) -> None:
    if one:
        publish(TOPIC, "for stock", key="k", group="stock")
    else:
        publish_many(TOPIC, [OutgoingMessage(1, group="billing"), OutgoingMessage(2, group="stock")])


@pytest.mark.parametrize("one", [True, False])
def test_registered_for_another_topic_is_not_registered(one: bool) -> None:
    subscribe("parcels", "depot")
    with pytest.raises(NotRegistered, match="depot"):
        publish(TOPIC, 1, group="depot", id="x" if one else None)
    assert not Message.objects.filter(topic=TOPIC).exists()


@pytest.mark.parametrize(
    ("group", "error", "match"),
    [
        ("", ValueError, "group"),
        (" x", ValueError, "group"),
        ("g" * 129, ValueError, "group"),
        (5, TypeError, "group"),
    ],
)
def test_bad_names(
    group: Any, error: type[Exception], match: str, django_assert_num_queries: Callable[[int], Any]
) -> None:
    with django_assert_num_queries(0), pytest.raises(error, match=match):
        publish(TOPIC, 1, group=group)


def test_still_one_statement(django_assert_num_queries: Callable[[int], Any]) -> None:
    with django_assert_num_queries(1):
        publish(TOPIC, 1, group="billing", key="k")
    with django_assert_num_queries(1):
        publish(TOPIC, 1, group="billing", id="x", key="k")
