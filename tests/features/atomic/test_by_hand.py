"""``delivery.atomic()`` commits the block's writes and the ack together, or neither of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_mqueue import (
    BrokenTransaction,
    OutgoingMessage,
    StaleDelivery,
    Subscription,
    WrongDatabase,
    publish,
    publish_many,
)
from django_mqueue.models import DeliveryState, PartitionLease
from tests.support.shop.models import Sale
from tests.support.subscribers import payloads_in_log
from tests.support.threads import lost_after_its_commit
from tests.support.transactions import Background, statements, wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("fast"),
]


def state() -> tuple[bool, bool]:
    found = DeliveryState.objects.get()
    return found.acked, found.in_flight


def test_writes_publishes_and_ack_together() -> None:
    publish("orders", 1)
    with Subscription("orders", "billing") as subscription:
        (delivery,) = subscription.poll()
        with delivery.atomic():
            Sale.objects.create(number=1)
            publish("sold", 1)
            assert state() == (False, True)
        assert state() == (True, False)
        assert delivery.ack(), "it is acked: once more is the same"
        assert subscription.poll() == []
    assert (Sale.objects.count(), payloads_in_log("sold")) == (1, [b"1"])


def test_a_block_for_a_delivery_that_was_answered_is_not_begun() -> None:
    """``atomic`` raises ``StaleDelivery`` for a settled delivery.

    A second ack would return True and commit the writes again.
    """
    publish_many("orders", [OutgoingMessage(n, key="k") for n in (1, 2)])
    with Subscription("orders", "billing") as subscription:
        first, second = wait_until(lambda: subscription.poll(), "both")
        with first.atomic():
            Sale.objects.create(number=1)
        second.postpone()
        for answered in (first, second):
            with pytest.raises(StaleDelivery), answered.atomic():
                Sale.objects.create(number=2)
    assert Sale.objects.count() == 1


def test_one_statement_for_the_ack_and_no_commit_besides() -> None:
    publish("orders", 1)
    with Subscription("orders", "billing") as subscription:
        (delivery,) = subscription.poll()
        with statements() as seen, delivery.atomic():
            pass
    assert [sql.split(" `")[0].split(" queue")[0] for sql in seen] == [
        "SAVEPOINT",
        "RELEASE SAVEPOINT",
        "UPDATE",
    ]


def test_of_a_block_that_raises_nothing_stays_and_the_delivery_is_still_open() -> None:
    publish("orders", 1)
    with Subscription("orders", "billing") as subscription:
        (delivery,) = subscription.poll()
        with suppress(ZeroDivisionError), delivery.atomic():
            Sale.objects.create(number=1)
            raise ZeroDivisionError
        assert (Sale.objects.count(), state()) == (0, (False, True))
        with delivery.atomic():
            Sale.objects.create(number=2)
        assert state() == (True, False)
    assert Sale.objects.get().number == 2


def test_a_delivery_that_was_lost_leaves_nothing() -> None:
    publish("orders", 1)
    with Subscription("orders", "billing") as subscription:
        (delivery,) = subscription.poll()
        PartitionLease.objects.update(holder="another")
        with pytest.raises(StaleDelivery), delivery.atomic():
            Sale.objects.create(number=1)
        assert (Sale.objects.count(), state()) == (0, (False, True))


def test_inside_of_the_callers_transaction() -> None:
    """The block is part of the caller's transaction, and commits or rolls back with it."""
    publish_many(
        "orders",
        [1, 2],
    )
    with Subscription("orders", "billing") as subscription:
        first, second = subscription.poll()
        with transaction.atomic():
            with first.atomic():
                Sale.objects.create(number=1)
            transaction.set_rollback(True)
        assert not DeliveryState.objects.filter(acked=True).exists()
        with transaction.atomic():
            for delivery in (first, second):
                with delivery.atomic():
                    Sale.objects.create(number=delivery.payload)
        assert DeliveryState.objects.filter(acked=True).count() == 2
    assert sorted(Sale.objects.values_list("number", flat=True)) == [1, 2]


def test_a_connection_that_is_lost_after_the_commit() -> None:
    """The connection is lost between COMMIT and the statement that turns autocommit on again.

    The subscription continues, and nothing is done twice.
    """
    publish("orders", 1, key="k")
    with Subscription("orders", "billing") as subscription:
        (delivery,) = wait_until(subscription.poll, "it comes")
        with lost_after_its_commit(), pytest.raises(OperationalError), delivery.atomic():
            Sale.objects.create(number=1)
        assert subscription.poll() == []
        with pytest.raises(StaleDelivery), delivery.atomic():
            Sale.objects.create(number=2)
        publish("orders", 2, key="k")
        (following,) = wait_until(subscription.poll, "the next one comes")
        assert (following.payload, following.ack()) == (2, True)
    assert [sale.number for sale in Sale.objects.all()] == [1]
    assert all(state.acked for state in DeliveryState.objects.all())
    assert not PartitionLease.objects.exclude(holder="").exists()


def test_a_strict_subscription_goes_on_behind_an_ack_whose_commit_was_not_heard_of() -> None:
    """The subscription continues as soon as a second block finds the committed ack.

    It does not wait for the visibility timeout. The blocks run in a thread, so the connection that polls is not lost.
    """
    publish_many("orders", [OutgoingMessage(number, key="k") for number in (1, 2)])
    with Subscription("orders", "billing", strict=True, visibility_timeout=600) as subscription:
        (delivery,) = wait_until(subscription.poll, "it comes")

        def twice() -> None:
            with lost_after_its_commit(), pytest.raises(OperationalError), delivery.atomic():
                Sale.objects.create(number=1)
            with pytest.raises(StaleDelivery), delivery.atomic():
                Sale.objects.create(number=2)

        with Background(twice) as background:
            background.result()
        (following,) = wait_until(subscription.poll, "the next one comes")
        assert (following.payload, following.ack()) == (2, True)
    assert [sale.number for sale in Sale.objects.all()] == [1]


def test_a_block_that_ends_the_transaction() -> None:
    publish("orders", 1)
    with Subscription("orders", "billing") as subscription:
        (delivery,) = subscription.poll()
        block = delivery.atomic()
        block.__enter__()
        with connection.cursor() as cursor:
            cursor.execute("COMMIT")
        Sale.objects.create(number=1)
        with pytest.raises(BrokenTransaction, match="COMMIT"):
            block.__exit__(None, None, None)
        assert (Sale.objects.count(), state()) == (0, (False, True))


def test_a_block_whose_transaction_can_only_be_rolled_back() -> None:
    publish("orders", 1)
    with Subscription("orders", "billing") as subscription:
        (delivery,) = subscription.poll()
        block = delivery.atomic()
        block.__enter__()
        Sale.objects.create(number=1)
        transaction.set_rollback(True)
        with pytest.raises(BrokenTransaction, match="rolled back"):
            block.__exit__(None, None, None)
        assert (Sale.objects.count(), state()) == (0, (False, True))


class Composed:
    """As ``psycopg.sql.Composed``: ``as_string`` returns the statement, and ``str`` does not."""

    def __repr__(self) -> str:
        return "Composed([SQL('INSERT INTO '), …])"

    def as_string(self, connection: object) -> str:
        return "INSERT INTO shop_sale (number) VALUES (1)"


@pytest.mark.parametrize(
    "sql",
    [
        Composed(),
        "INSERT INTO shop_sale (number) VALUES (1)",
        " delete from shop_sale",
        "TRUNCATE shop_sale",
        "/* x */ INSERT INTO shop_sale (number) VALUES (1)",
        "-- x\nINSERT INTO shop_sale (number) VALUES (1)",
        "#x\n/**/ UPDATE shop_sale SET number = 2",
        "/*!50000 INSERT */ INTO shop_sale (number) VALUES (1)",
        "WITH one AS (SELECT 1 n) UPDATE shop_sale, one SET number = n",
        "SELECT 1; DELETE FROM shop_sale",
        b"INSERT INTO shop_sale (number) VALUES (1)",
    ],
)
def test_a_write_to_another_database(sql: Any) -> None:
    publish("orders", 1)
    with Subscription("orders", "billing") as subscription:
        (delivery,) = subscription.poll()
        with (
            pytest.raises(WrongDatabase, match="'other'"),
            delivery.atomic(),
            connections["other"].cursor() as cursor,
        ):
            cursor.execute(sql)
        assert state() == (False, True)
    with connections["other"].cursor() as cursor:
        cursor.execute("INSERT INTO shop_sale (number) VALUES (1)")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'INSERT INTO shop_sale'",
        "/* INSERT */ SELECT COUNT(*) FROM shop_sale",
        "(SELECT 1 FROM shop_sale) UNION (SELECT 2)",
        "WITH words AS (SELECT 'please update' AS word) SELECT * FROM words",
        "WITH words AS (SELECT REPLACE('a', 'b', 'c') AS `delete`) SELECT * FROM words -- ) DELETE FROM x",
        "WITH sold AS (SELECT 1) SELECT * FROM shop_sale FOR UPDATE",
    ],
)
def test_a_read_from_another_database(sql: str) -> None:
    """Write keywords in strings, names and comments do not count as writes."""
    publish("orders", 1)
    with Subscription("orders", "billing") as subscription:
        (delivery,) = subscription.poll()
        with delivery.atomic(), connections["other"].cursor() as cursor:
            cursor.execute(sql)
            cursor.fetchall()
        assert state() == (True, False)


def test_with_the_queue_in_another_database() -> None:
    """The block may then write only to the queue's database."""
    publish("orders", 1, using="other")
    with Subscription("orders", "billing", using="other") as subscription:
        (delivery,) = subscription.poll()
        with pytest.raises(WrongDatabase, match="'default'"), delivery.atomic():
            Sale.objects.create(number=1)
        with delivery.atomic():
            Sale.objects.using("other").create(number=1)
    assert (Sale.objects.count(), Sale.objects.using("other").count()) == (0, 1)
    assert DeliveryState.objects.using("other").get().acked
