"""``REQUIRE_TRANSACTION`` and ``require_transaction``: a publish outside a transaction is an error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.test import TestCase, override_settings

from django_mqueue import (
    NoTransaction,
    Subscription,
    Topic,
    apublish,
    publish,
    publish_many,
    redrive,
    request,
    subscribe,
)
from django_mqueue.service import topics
from django_mqueue.testing import requests_answered
from tests.support.running import Seen, registered, run
from tests.support.subscribers import consume, in_log, poll_until
from tests.support.transactions import statements

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"
REQUIRED = override_settings(MQUEUE={"REQUIRE_TRANSACTION": True})


@pytest.fixture
def declared() -> Iterator[Topic[Any]]:
    yield Topic(TOPIC)
    del topics._declared[TOPIC]


WAYS: dict[str, Callable[[Topic[Any]], object]] = {
    "publish": lambda _: publish(TOPIC, 1),
    "publish with an id": lambda _: publish(TOPIC, 1, id="mine"),
    "publish later": lambda _: publish(TOPIC, 1, delay=60),
    "publish_many": lambda _: publish_many(TOPIC, range(3)),
    "publish_many of nothing": lambda _: publish_many(TOPIC, []),
    "apublish": lambda _: asyncio.run(apublish(TOPIC, 1)),
    "Topic.publish": lambda topic: topic.publish(1),
    "Topic.publish_many": lambda topic: topic.publish_many([1, 2]),
    "Topic.apublish": lambda topic: asyncio.run(topic.apublish(1)),
}


@REQUIRED
@pytest.mark.parametrize("way", WAYS)
def test_a_publish_without_a_transaction_is_refused_before_any_sql(way: str, declared: Topic[Any]) -> None:
    """The error names the topic, the database, and the ways out."""
    with statements() as seen, pytest.raises(NoTransaction) as refused:
        WAYS[way](declared)
    assert seen == []
    assert in_log(TOPIC) == []
    assert (refused.value.topic, refused.value.using) == (TOPIC, "default")
    for part in (
        "'orders'",
        "'default'",
        "transaction.atomic()",
        "require_transaction=False",
        "REQUIRE_TRANSACTION",
    ):
        assert part in str(refused.value)


@REQUIRED
@pytest.mark.parametrize("way", [way for way in WAYS if "apublish" not in way])
def test_a_publish_in_a_transaction_is_allowed(way: str, declared: Topic[Any]) -> None:
    with transaction.atomic():
        WAYS[way](declared)


@REQUIRED
def test_autocommit_that_is_off_is_a_transaction() -> None:
    connection.set_autocommit(False)
    try:
        publish(TOPIC, 1)
        connection.rollback()
    finally:
        connection.set_autocommit(True)
    assert in_log(TOPIC) == []


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@REQUIRED
def test_the_transaction_must_be_on_the_queues_database() -> None:
    with transaction.atomic(), pytest.raises(NoTransaction, match=r"transaction.atomic\(using='other'\)"):
        publish(TOPIC, 1, using="other")
    with transaction.atomic(using="other"):
        assert publish(TOPIC, 1, using="other").created


def test_the_argument_takes_precedence_over_the_topic_and_the_topic_over_the_setting() -> None:
    assert publish(TOPIC, 1).created, "the default requires nothing"
    with pytest.raises(NoTransaction):
        publish(TOPIC, 1, require_transaction=True)
    with pytest.raises(NoTransaction):
        publish_many(TOPIC, [1], require_transaction=True)
    with override_settings(MQUEUE={"TOPICS": {TOPIC: {"REQUIRE_TRANSACTION": True}}}):
        assert publish("payments", 1).created
        assert publish(TOPIC, 1, require_transaction=False).created
        with pytest.raises(NoTransaction):
            publish(TOPIC, 1)
    with override_settings(
        MQUEUE={"REQUIRE_TRANSACTION": True, "TOPICS": {TOPIC: {"REQUIRE_TRANSACTION": False}}}
    ):
        assert publish_many(TOPIC, [1])[0].created
        with pytest.raises(NoTransaction):
            publish("payments", 1)


def test_an_argument_that_is_no_bool_is_refused() -> None:
    with pytest.raises(TypeError, match="require_transaction must be True, False or None, not 'yes'"):
        publish(TOPIC, 1, require_transaction="yes")  # type: ignore[arg-type]


@REQUIRED
def test_asynchronous_code_publishes_by_a_function_with_a_transaction() -> None:
    def order() -> bool:
        with transaction.atomic():
            return publish(TOPIC, 1).created

    assert asyncio.run(sync_to_async(order)())


class TestInATestCase(TestCase):
    """Django runs these tests in transactions of their own. They do not count."""

    @REQUIRED
    def test_the_test_s_transaction_does_not_count(self) -> None:
        with pytest.raises(NoTransaction):
            publish(TOPIC, 1)
        with transaction.atomic():
            assert publish(TOPIC, 1).created
        with pytest.raises(NoTransaction):
            publish(TOPIC, 1)


@REQUIRED
def test_a_handler_publishes_in_a_transaction_or_is_atomic() -> None:
    """The first attempt of the plain handler fails with ``NoTransaction``."""

    def plain(message: Any) -> None:
        if message.attempt == 1:
            publish("receipts", message.payload)
        with transaction.atomic():
            publish("receipts", message.payload)

    publish(TOPIC, 1, require_transaction=False)
    seen = Seen(plain)
    with registered(TOPIC, seen, group="plain", retry=[0]):
        run()
    assert [message.attempt for message in seen.messages] == [1, 2]
    assert "NoTransaction" in seen.messages[1].last_error
    with registered(TOPIC, lambda message: publish("receipts", message.payload), group="atomic", atomic=True):
        run()
    assert len(in_log("receipts")) == 2


@REQUIRED
def test_what_the_queue_itself_stores_needs_no_transaction_of_the_caller() -> None:
    """Dead letters, redrives and the promotion of scheduled messages work as before, and so does ``request``."""
    subscribe(TOPIC, "billing")
    with transaction.atomic():
        publish(TOPIC, "bad")
        publish(TOPIC, "soon", delay=0.001)
    with Subscription(TOPIC, group="billing") as subscription:
        for delivery in poll_until(subscription, 2):
            delivery.reject("broken") if delivery.payload == "bad" else delivery.ack()
    assert redrive(TOPIC) == 1
    with Subscription(TOPIC, group="billing") as subscription:
        assert [delivery.payload for delivery in consume(subscription, 1)] == ["bad"]
    with registered("prices", lambda message: message.reply(7)), requests_answered():
        assert request("prices", 1).payload == 7
