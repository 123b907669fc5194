"""``using=`` and ``MQUEUE["DATABASE"]`` select the database of a message."""

from __future__ import annotations

import pytest
from django.db import connections
from django.test import override_settings
from django.utils.connection import ConnectionDoesNotExist

from django_mqueue import MQueueError, Subscription, publish, publish_many, subscribe, unsubscribe
from tests.support.subscribers import QUICK, consume, in_log, poll_until, settle_and_collect
from tests.support.transactions import rolled_back, statements

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

TOPIC, GROUP = "orders", "billing"


def test_using_names_the_database() -> None:
    """Each call runs one statement on the other database, and none on the default one."""
    with statements("default") as here, statements("other") as there:
        publish(TOPIC, 1, using="other")
        publish_many(TOPIC, [2, 3], using="other")
    assert (len(here), len(there)) == (0, 2)
    assert len(in_log(TOPIC, "other")) == 3
    assert in_log(TOPIC) == []


def test_the_setting_names_the_database_where_nobody_says() -> None:
    """The argument ``using`` overrides the setting."""
    with override_settings(MQUEUE={"DATABASE": "other"}):
        publish(TOPIC, 1)
        publish(TOPIC, 2, using="default")
        assert subscribe(TOPIC, GROUP)
        with Subscription(TOPIC, group=GROUP) as subscription:
            assert [d.payload for d in consume(subscription, 1)] == [1]
    assert len(in_log(TOPIC, "other")) == len(in_log(TOPIC)) == 1


def test_only_a_transaction_of_the_same_database_takes_the_message_with_it() -> None:
    with rolled_back("default"):
        publish(TOPIC, 1, using="other")
        publish(TOPIC, 2)
    with rolled_back("other"):
        publish(TOPIC, 3, using="other")
        publish(TOPIC, 4)
    assert len(in_log(TOPIC, "other")) == len(in_log(TOPIC)) == 1


def test_a_whole_life_on_another_database() -> None:
    """The group is registered, consumes, dead-letters and collects there. No statement runs on the default database."""
    with override_settings(MQUEUE=QUICK), statements("default") as here:
        assert subscribe(TOPIC, GROUP, using="other")
        publish_many(TOPIC, [1, 2], using="other")
        with Subscription(TOPIC, group=GROUP, using="other") as subscription:
            first, second = sorted(poll_until(subscription, 2), key=lambda d: d.offset)
            first.ack()
            second.reject("no")
            settle_and_collect(subscription)
        assert in_log(TOPIC, "other") == []
        assert len(in_log(f"{TOPIC}_dlq", "other")) == 1
        assert unsubscribe(TOPIC, GROUP, using="other")
    assert here == []


def test_groups_of_two_databases_know_nothing_of_each_other() -> None:
    publish(TOPIC, "here")
    publish(TOPIC, "there", using="other")
    with (
        Subscription(TOPIC, group=GROUP, name="n") as here,
        Subscription(TOPIC, GROUP, "n", using="other") as there,
    ):
        assert [d.payload for d in consume(here, 1)] == ["here"]
        assert [d.payload for d in consume(there, 1)] == ["there"]


def test_a_transaction_of_another_database_is_no_obstacle_to_poll() -> None:
    """Only a transaction on the queue's own database would undo a claim."""
    publish(TOPIC, 1, using="other")
    with Subscription(TOPIC, group=GROUP, using="other") as subscription:
        with rolled_back("default"):
            (delivery,) = poll_until(subscription, 1)
        assert delivery.ack()
        with rolled_back("other"), pytest.raises(MQueueError, match="inside a transaction on 'other'"):
            subscription.poll()


def test_an_unknown_database_is_named() -> None:
    assert "nowhere" not in connections
    with pytest.raises(ConnectionDoesNotExist, match="nowhere"):
        publish(TOPIC, 1, using="nowhere")
