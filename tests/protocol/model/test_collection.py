"""A bug that the model found: a collection waits for open publishers if it reads more of the log than it deletes."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import override_settings

from django_mqueue import Subscription, publish, subscribe
from tests.support.subscribers import QUICK, collect, in_log, poll_until, settle
from tests.support.transactions import HeldTransaction

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("topic", ["orders", "another"])
@pytest.mark.parametrize("messages", [3, 9, 300])
def test_a_collection_of_nearly_all_there_is_does_not_wait_for_a_publisher(topic: str, messages: int) -> None:
    """Nearly all messages of the log are acked.

    A collection deletes them while an open transaction has published a message above them.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
    with override_settings(MQUEUE=QUICK):
        subscribe("orders", "billing")
        with Subscription("orders", "billing") as subscription:
            for n in range(messages):
                publish("orders", n, key=f"k{n % 3}")
            subscription.ack(poll_until(subscription, messages))
            settle(subscription)
            with HeldTransaction(lambda: publish(topic, "held", key="k1")):
                collect("orders")
                assert in_log("orders") == []
    connection.close()
