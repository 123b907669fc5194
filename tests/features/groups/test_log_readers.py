"""Deletion waits for groups that read the log themselves, even for messages of another group."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish, redrive, reset, subscribe, unsubscribe
from django_mqueue.inspect import holds
from django_mqueue.models import Message
from django_mqueue.spark.database import following
from tests.support.processes import database_ms
from tests.support.subscribers import QUICK, collect, consume, in_log, poll_until, settle_and_collect

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP, READER = "orders", "billing", "archive"


@pytest.fixture
def reader() -> following.ReaderPosition:
    subscribe(TOPIC, GROUP)
    return following.follow(TOPIC, READER, 0, 0, using="default")


def read_on(reader: following.ReaderPosition, to: int) -> None:
    following.move(TOPIC, READER, reader.generation, to, using="default")
    collect(TOPIC)


@override_settings(MQUEUE=QUICK)
def test_a_message_for_another_group_is_kept_until_it_is_read(reader: following.ReaderPosition) -> None:
    first, second = (publish(TOPIC, n, key="k", group=GROUP).offset for n in range(2))
    with Subscription(TOPIC, GROUP) as subscription:
        consume(subscription, 2)
        settle_and_collect(subscription)
        assert in_log(TOPIC) == [first, second]
        read_on(reader, first)
        assert in_log(TOPIC) == [second]
        read_on(reader, second)
        assert in_log(TOPIC) == []


@override_settings(MQUEUE=QUICK)
def test_a_reset_leaves_it_a_reader(reader: following.ReaderPosition) -> None:
    """Deletion still waits for it, although no query has read since the reset."""
    first = publish(TOPIC, 1, key="k", group=GROUP).offset
    reset(TOPIC, READER, "earliest")
    with Subscription(TOPIC, GROUP) as subscription:
        consume(subscription, 1)
        settle_and_collect(subscription)
    assert in_log(TOPIC) == [first]


@override_settings(MQUEUE=QUICK)
def test_it_is_kept_for_its_own_group_when_it_is_read(reader: following.ReaderPosition) -> None:
    last = publish(TOPIC, 1, key="k", group=GROUP).offset
    with Subscription(TOPIC, GROUP) as subscription:
        (delivery,) = poll_until(subscription, 1)
        settle_and_collect(subscription)
        read_on(reader, last)
        assert in_log(TOPIC) == [last]
        delivery.ack()
        settle_and_collect(subscription)
    assert in_log(TOPIC) == []


@override_settings(MQUEUE=QUICK)
def test_what_was_sent_back_is_kept_until_it_is_read(reader: following.ReaderPosition) -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        poll_until(subscription, 1)[0].reject("no")
        assert redrive(TOPIC) == 1
        consume(subscription, 1)
        settle_and_collect(subscription)
        first, again = in_log(TOPIC)
        read_on(reader, first)
        assert in_log(TOPIC) == [again]
        read_on(reader, again)
    assert in_log(TOPIC) == []


@override_settings(MQUEUE=QUICK)
def test_a_message_for_a_group_that_is_gone_waits_for_readers_alone(reader: following.ReaderPosition) -> None:
    last = publish(TOPIC, 1, key="k", group=GROUP).offset
    unsubscribe(TOPIC, GROUP)
    with Subscription(TOPIC, "other") as subscription:
        settle_and_collect(subscription)
        assert in_log(TOPIC) == [last]
        read_on(reader, last)
    assert in_log(TOPIC) == []


def test_a_reader_is_told_that_holds_what_is_for_another_group(reader: following.ReaderPosition) -> None:
    last = publish(TOPIC, 1, key="k", group=GROUP).offset
    Message.objects.update(published_at=database_ms() - 3 * 3_600_000)
    assert [(one.group, one.offset) for one in holds(TOPIC)] == [(READER, last), (GROUP, last)]
