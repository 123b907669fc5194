"""A claim was committed, but its worker does not know it. The worker undoes the claim and claims again."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from django_mqueue import OutgoingMessage, Subscription, publish_many
from tests.protocol.hostile.breaking import lost_answer_to_commit
from tests.support.subscribers import poll_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]


def test_what_a_doubtful_claim_took_is_delivered_at_once() -> None:
    """The visibility timeout does not have to expire first, and no other message of the key comes before it."""
    publish_many("t", [OutgoingMessage(n, key="k") for n in range(2)])
    with (
        Subscription("t", "g", strict=True) as subscription,
        lost_answer_to_commit("INSERT INTO queue_delivery_state"),
    ):
        (delivery,) = poll_until(subscription, 1)
        assert (delivery.payload, delivery.attempt) == (0, 1)


@pytest.mark.parametrize("code", [3100, 3101])
def test_what_the_others_of_a_replication_group_committed_is_delivered_at_once(code: int) -> None:
    """A primary that leaves its replication group rolls back what it has already sent. The next primary keeps it."""
    publish_many("t", [OutgoingMessage(n, key="k") for n in range(2)])
    with (
        Subscription("t", "g", strict=True) as subscription,
        lost_answer_to_commit("INSERT INTO queue_delivery_state", code),
    ):
        with pytest.raises(OperationalError, match=str(code)):
            poll_until(subscription, 1)
        (delivery,) = poll_until(subscription, 1)
        assert (delivery.payload, delivery.attempt) == (0, 1)
