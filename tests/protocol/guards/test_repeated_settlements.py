"""A worker settles a delivery again because it does not know that the first commit succeeded. It counts once."""

from __future__ import annotations

import pytest

from django_mqueue import Delivery, Subscription, publish
from django_mqueue.models import DeliveryState, Message
from tests.support.subscribers import poll_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]

TOPIC, GROUP = "orders", "billing"

ANSWERS = {
    "ack": lambda delivery: delivery.ack(),
    "nack": lambda delivery: delivery.nack(delay=60, error="no"),
    "reject": lambda delivery: delivery.reject("no"),
    "postpone": lambda delivery: delivery.postpone(60),
}


@pytest.mark.parametrize("verb", ANSWERS)
def test_an_answer_given_again_changes_nothing(verb: str) -> None:
    """The worker has forgotten that it settled the delivery. The database has not."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        (delivery,) = poll_until(subscription, 1)
        assert ANSWERS[verb](delivery)
        before = rows()
        forget(delivery)
        assert ANSWERS[verb](delivery)
        assert rows() == before


def forget(delivery: Delivery) -> None:
    delivery.status.settled_by = ""


def rows() -> list[dict[str, object]]:
    return [
        *map(dict, DeliveryState.objects.values()),
        *map(dict, Message.objects.order_by("offset").values("offset", "topic")),
    ]
