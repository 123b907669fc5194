"""Workers wait for no transaction of the application, however long it stays open.

They wait neither for its rows nor for the gate. The server may choose to read a whole table if the table is small, or
if a list of values is long. A statement that locks what it reads then waits for rows that it does not need.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe, unsubscribe
from django_mqueue.store import garbage
from django_mqueue.store.connection import session
from tests.support.subscribers import QUICK, collect, consume, engine_of, in_log, settle
from tests.support.threads import raw_connection
from tests.support.transactions import HeldTransaction, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = [f"k{n}" for n in range(5)]
TOPIC, OTHER = "orders", "letters"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A statement that waits for a lock for a second fails, and is not retried."""
    monkeypatch.setattr(session, "ATTEMPTS", 1)
    with override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 600, "GC_INTERVAL": 3600}):
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
        yield
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 50")


def publish_everywhere(many: int) -> None:
    for topic in (TOPIC, OTHER):
        publish_many(topic, [OutgoingMessage(n, key=KEYS[n % len(KEYS)]) for n in range(many)])
        publish(topic, "keyless")


@pytest.mark.parametrize("many", [1, 20, 1_500])
def test_all_that_a_worker_does_beside_an_open_transaction_with_messages_in_every_partition(
    many: int,
) -> None:
    """A (an application) has published to each partition of two topics in a transaction that stays open.

    B (a worker) does all its work.
    """
    subscribe(TOPIC, "g")
    publish_everywhere(many)
    with (
        Subscription(TOPIC, "g", "w", batch_size=1000) as subscription,
        Subscription(OTHER, "g", "w", batch_size=1000) as other,
    ):
        consume(subscription, many + 1)
        consume(other, many + 1)
        settle(subscription)
        settle(other)
        with HeldTransaction(lambda: publish_everywhere(5)):
            collect(TOPIC)
            publish_everywhere(len(KEYS))
            deliveries = subscription.poll(100)
            for verb, delivery in zip(("nack", "reject", "postpone", "ack"), deliveries, strict=False):
                getattr(delivery, verb)()
            deliveries[4].extend(30)
            subscription.ack(deliveries[4:])
            collect(OTHER)
            subscribe(TOPIC, "h")
            with Subscription(TOPIC, "h") as late:
                late.ack(late.poll(1000))
                engine = engine_of(late)
                engine.membership._renew()
                garbage.give_up_drained("default", engine.state.holder, list(engine.state.partitions))
            unsubscribe(TOPIC, "h")
            settle(subscription)
            collect(TOPIC)
        assert len(in_log(OTHER)) == len(KEYS) + 1, "what was done is deleted, beside the open transaction"


def test_a_lease_beside_one_whose_delivery_is_acked_in_an_open_transaction() -> None:
    """A's partition was given up. An old snapshot keeps the server from purging the lease row.

    The partition is leased again while B's delivery is acked in an open transaction.
    """
    subscribe(TOPIC, "g")
    with Subscription(TOPIC, "g", "w") as subscription, raw_connection() as old:
        publish_many(TOPIC, [OutgoingMessage(1, key=key) for key in ("A", "B")])
        consume(subscription, 2)
        old.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.commit()
        old.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        state = engine_of(subscription).state
        garbage.give_up_drained("default", state.holder, ["A"])
        state.drop(["A"])
        publish(TOPIC, 2, key="B")
        (delivery,) = wait_until(subscription.poll, "the next one of B")
        with HeldTransaction(delivery.ack):
            publish(TOPIC, 2, key="A")
            (other,) = wait_until(subscription.poll, "the next one of A")
            assert other.ack()
        assert delivery.ack()


def test_publishers_do_not_wait_for_a_collection_under_way() -> None:
    """A (collection) has deleted and not committed. B (applications) publish to the same partitions without waiting."""
    publish_everywhere(20)
    with Subscription(TOPIC, "g") as subscription:
        consume(subscription, 21)
        settle(subscription)
        with HeldTransaction(lambda: collect(TOPIC)):
            publish_everywhere(20)
