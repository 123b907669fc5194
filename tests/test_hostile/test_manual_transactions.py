"""Answers and polls on a connection whose autocommit was turned off: a transaction without an ``atomic`` block."""

from __future__ import annotations

import pytest
from django.db import connection

from django_mqueue import MQueueError, Subscription, publish
from django_mqueue.models import DeliveryState
from tests.support.subscribers import poll_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "postpone", "extend"])
def test_answers_with_autocommit_turned_off_count_with_the_commit(verb: str) -> None:
    """No ``atomic`` block, but a transaction all the same. The verb is True, and its effect is the commit's."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        (delivery,) = poll_until(subscription, 1)
        connection.set_autocommit(False)
        try:
            assert getattr(delivery, verb)(*([60] if verb == "extend" else []))
            connection.commit()
        finally:
            connection.set_autocommit(True)
        state = DeliveryState.objects.get()
        assert (state.acked, state.in_flight) == (verb in ("ack", "reject"), verb == "extend")
        if verb in ("nack", "postpone"):
            (again,) = poll_until(subscription, 1, seconds=5)
            assert again.attempt == (2 if verb == "nack" else 1)


def test_polling_with_autocommit_turned_off_is_refused() -> None:
    """What it delivers would be undone with the transaction; nothing is leased or claimed."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        connection.set_autocommit(False)
        try:
            with pytest.raises(MQueueError, match="transaction"):
                subscription.poll()
        finally:
            connection.set_autocommit(True)
        assert not DeliveryState.objects.exists()
