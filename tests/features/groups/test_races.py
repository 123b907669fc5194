"""Registration, collection and unsubscribing at the same moment: none acts on another's unfinished change."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
from django.test import override_settings

from django_mqueue import (
    Subscription,
    publish,
    subscribe,
    unsubscribe,
)
from django_mqueue.models import Offset, PartitionLease
from django_mqueue.protocol.settling import Settler
from django_mqueue.service import registration
from django_mqueue.store import removal
from tests.protocol.interleavings.steps import Stopped
from tests.support.subscribers import (
    QUICK,
    consume,
    consume_rest,
    in_log,
    lock_topic,
    payloads,
    settle_and_collect,
    with_state,
)
from tests.support.transactions import PATIENCE, Background, HeldTransaction, wait_for_lock_wait

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"
BEFORE_THE_REST = "AND partition_key = %s FOR UPDATE"


@override_settings(MQUEUE=QUICK)
def test_registration_waits_for_a_collection_that_is_under_way() -> None:
    """A collection that has read the groups deletes before another group registers. The new group gets what is left."""
    with Subscription(TOPIC, group="a") as subscription:
        publish(TOPIC, "gone", key="k")
        consume(subscription, 1)
        settle_and_collect(subscription)
        publish(TOPIC, "there", key="k")

    with ExitStack() as stack:
        collection = stack.enter_context(HeldTransaction(lambda: lock_topic(TOPIC)))
        newcomer = stack.enter_context(Background(lambda: subscribe(TOPIC, "b")))
        wait_for_lock_wait(newcomer)
        assert not Offset.objects.filter(consumer_group="b").exists()
        collection.commit()
        assert newcomer.result()
    with Subscription(TOPIC, group="b") as subscription:
        assert payloads(subscription, 1) == ["there"]


@override_settings(MQUEUE=QUICK)
def test_collection_leaves_a_topic_where_a_registration_is_under_way() -> None:
    """Collection does not wait for the registration, and deletes nothing that the new group must receive."""
    with Subscription(TOPIC, group="a") as subscription:
        publish(TOPIC, 1, key="k")
        consume(subscription, 1)
        with HeldTransaction(lambda: subscribe(TOPIC, "newcomer")) as held:
            with Background(lambda: settle_and_collect(subscription)) as collection:
                collection.result()
            assert len(in_log(TOPIC)) == 1
            held.commit()
        settle_and_collect(subscription)
        assert len(in_log(TOPIC)) == 1
    with Subscription(TOPIC, group="newcomer") as subscription:
        assert payloads(subscription, 1) == [1]


@override_settings(MQUEUE=QUICK)
def test_two_that_register_one_group_at_once_do_not_undo_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow registration waits for a quiet moment.

    It ends after another worker has registered the group and consumed.
    """
    # The slow registration ends with the transaction, also on a slow machine.
    monkeypatch.setattr(registration, "SETTLE_FOR", PATIENCE)
    looking = threading.Event()

    class Looking(Settler):
        def advance(self, seen: int = 0) -> int:
            looking.set()
            return super().advance(seen)

    monkeypatch.setattr(registration, "Settler", Looking)
    publish(TOPIC, "first", key="k")
    with ExitStack() as stack:
        held = stack.enter_context(HeldTransaction(lambda: publish(TOPIC, "late", key="other")))
        publish(TOPIC, "second", key="k")
        slow = stack.enter_context(Background(lambda: subscribe(TOPIC, "a", start="latest")))
        assert looking.wait(PATIENCE), "it looks for a quiet moment, and has found no group"
        with Subscription(TOPIC, group="a") as subscription:
            assert payloads(subscription, 2) == ["first", "second"]
            assert not slow.is_done, "the slow one was not slow: this proves nothing"
            held.rollback()
            assert slow.result() is False
            PartitionLease.objects.update(lease_renewed_at=0)
            assert consume_rest(subscription) == []
    with Subscription(TOPIC, group="a") as subscription:
        assert consume_rest(subscription) == []


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_an_unsubscribe_that_ends_late_takes_nothing_from_those_who_came_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group subscribes again and consumes between two transactions of its removal."""
    monkeypatch.setattr(removal, "ROWS", 1)
    published = [publish(TOPIC, n, key="k").offset for n in range(2)]
    with Subscription(TOPIC, group="a") as subscription:
        consume(subscription, 2)
    with Stopped(lambda: unsubscribe(TOPIC, "a"), BEFORE_THE_REST) as leaving:
        assert len(with_state(TOPIC, "a")) == 1, "it does not stand between two transactions"
        assert subscribe(TOPIC, "a")
        with Subscription(TOPIC, group="a") as subscription:
            assert sorted(map(str, payloads(subscription, 2))) == ["0", "1"]
            assert leaving.go()
    assert with_state(TOPIC, "a") == published
    with Subscription(TOPIC, group="a") as subscription:
        assert consume_rest(subscription) == []
