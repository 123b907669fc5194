"""The database is restored to an earlier state behind a proxy. Workers keep their connections and their memory."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many
from django_mqueue.store import gates, offsets
from django_mqueue.store.connection.dialect import NOW_MS
from tests.support.restore import Earlier
from tests.support.subscribers import CALM, collect, consume, engine_of, in_log, settle
from tests.support.threads import RawConnection, raw_connection
from tests.support.transactions import HeldTransaction, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"


def hold_a_slot(held: RawConnection) -> None:
    """Lock a slot that publishers will use in sixteen seconds, and not before."""
    name = gates.slot_name(gates.gate_of(TOPIC), 0)[:-3]
    held.execute(
        "SELECT 1 FROM queue_offsets FORCE INDEX (queue_offsets_partition) WHERE consumer_group = '' AND topic = ''"
        f" AND partition_key = CONCAT(%s, LPAD(({NOW_MS} DIV {gates.SLOT_MS} + 32) MOD {gates.SLOTS}, 3, '0'))"
        " LOCK IN SHARE MODE",
        [name],
    )


def publish_one(message: OutgoingMessage) -> None:
    publish(TOPIC, message.payload, key=message.key, id=message.id)


@override_settings(MQUEUE=CALM)
def test_two_of_a_strict_key_are_not_delivered_at_once() -> None:
    """The worker has one offset of each of two keys in memory.

    After the restore, both offsets belong to the second key.
    """
    keys = ("a", "b")
    with Subscription(TOPIC, GROUP, strict=True) as subscription:
        publish_many(TOPIC, [OutgoingMessage(0, key=key) for key in keys])
        consume(subscription, 2)
        settle(subscription)
        earlier = Earlier()
        publish_many(TOPIC, [OutgoingMessage(1, key=key) for key in keys])
        engine = engine_of(subscription)
        engine.tailer.tick()
        assert [len(engine.state.partitions[key].fresh) for key in keys] == [1, 1]
        before = in_log(TOPIC)
        earlier.set_back()
        publish_many(TOPIC, [OutgoingMessage(n, key="b") for n in (5, 6)])
        assert in_log(TOPIC) == before
        got: list[int] = []

        def one_by_one() -> bool:
            together = subscription.poll()
            assert len(together) <= 1
            for delivery in together:
                assert delivery.ack()
                got.append(delivery.payload)
            return len(got) == 2

        wait_until(one_by_one, "both are delivered")
        assert got == [5, 6]


@override_settings(MQUEUE=CALM)
def test_a_round_of_settling_is_of_no_use_where_the_same_is_published_again() -> None:
    """After a restore, the same messages are published again in the same order.

    Each gets the offset that it had before. Slots that were free in the round before the restore are now held, so that
    round must not settle anything.
    """
    # The first message has another key. So its lock in the index of ids blocks no other message.
    again = [OutgoingMessage(n, key="k" if n > 5 else "a", id=f"id-{n}") for n in range(5, 10)]
    with Subscription(TOPIC, GROUP) as subscription:
        publish_many(TOPIC, [OutgoingMessage(n, key="b") for n in range(5)])
        consume(subscription, 5)
        settled = settle(subscription)
        earlier = Earlier()
        with raw_connection() as held:
            hold_a_slot(held)
            for message in again:
                publish_one(message)
            before = in_log(TOPIC)
            consume(subscription, 5)
            assert settle(subscription) == settled == earlier.newest
        earlier.set_back()
        with HeldTransaction(lambda: publish_one(again[0])) as late:
            for message in again[1:]:
                publish_one(message)
            assert in_log(TOPIC)[-1] == before[-1]
            settle(subscription)
            assert offsets.settled("default", TOPIC) == settled
            late.commit()
        assert in_log(TOPIC) == before
        collect(TOPIC)
        connection.close()
        assert sorted(delivery.payload for delivery in consume(subscription, 5)) == [5, 6, 7, 8, 9]
