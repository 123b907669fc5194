"""Settling a batch is a compare-and-set for each of its messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection

from django_mqueue import Delivery, StaleDelivery, Subscription
from django_mqueue.models import DeliveryState
from django_mqueue.protocol.acknowledging.transactional import atomically
from tests.support.shop.models import Sale
from tests.support.subscribers import acknowledger_of
from tests.support.threads import raw_connection

from .batches import publish_all, states

pytestmark = pytest.mark.django_db(transaction=True)

LOCK = (
    "SELECT 1 FROM queue_delivery_state"
    " WHERE consumer_group = 'g' AND topic = 't' AND partition_key = 'k' AND message_offset = %s FOR UPDATE"
)
"""With the offset alone, MySQL may choose a skip scan. It also locks the first row of the partition."""


@pytest.fixture
def batch() -> list[Delivery]:
    """Return three deliveries of an open subscription. Another worker has claimed the second message since."""
    publish_all("t", range(3))
    deliveries = Subscription("t", "g").open().poll()
    DeliveryState.objects.filter(message_offset=deliveries[1].offset).update(delivery_token=7)
    return deliveries


@pytest.mark.parametrize(("error", "failures"), [("no", 1), (None, 0)], ids=["nack", "postpone"])
def test_those_that_are_ours_are_put_back_and_the_others_told(
    batch: list[Delivery], error: str | None, failures: int
) -> None:
    with pytest.raises(StaleDelivery) as told:
        batch[0].status.acknowledger.nack_or_postpone(batch, 0, error)
    assert told.value.stale == [batch[1]]
    assert states() == [(False, failures, 0), (False, 0, 0), (False, failures, 0)]
    flying = DeliveryState.objects.order_by("message_offset").values_list("in_flight", flat=True)
    assert list(flying) == [False, True, False]
    batch[0].status.acknowledger.nack_or_postpone(
        [batch[0], batch[2]], 0, error
    )  # Repeating it is no error and changes nothing.
    assert states()[0] == (False, failures, 0)
    with pytest.raises(StaleDelivery):
        batch[0].status.acknowledger.nack_or_postpone([batch[0]], 0, None if error else "no")


def test_an_atomic_block_acks_all_or_none(batch: list[Delivery]) -> None:
    with pytest.raises(StaleDelivery) as told, atomically(batch):
        Sale.objects.create(number=1)
    assert told.value.stale == [batch[1]]
    assert (states(), Sale.objects.count()) == ([(False, 0, 0)] * 3, 0)
    assert [delivery.status.settled_by for delivery in batch] == ["", "", ""]
    with atomically([batch[0], batch[2]]):
        Sale.objects.create(number=2)
    assert (states(), Sale.objects.count()) == ([(True, 0, 0), (False, 0, 0), (True, 0, 0)], 1)


def rejected(told: list[Delivery]) -> Callable[[list[Delivery]], list[Delivery]]:
    def reject(free: list[Delivery]) -> list[Delivery]:
        stale = []
        told[:] = free  # This is called again after a deadlock or a lock wait timeout.
        for delivery in free:
            try:
                delivery.reject("too long")
            except StaleDelivery as error:
                stale += error.stale
        return stale

    return reject


def test_what_somebody_has_locked_is_left_for_another_time(batch: list[Delivery]) -> None:
    """``settle_unlocked`` leaves a locked message for later. It does not wait for a stale one."""
    told: list[Delivery] = []
    with raw_connection() as other:
        other.execute(LOCK, [batch[0].offset])
        assert acknowledger_of(batch[0]).settle_unlocked(batch, rejected(told)) == ([batch[0]], [batch[1]])
        other.rollback()
    assert told == batch[2:]
    assert states() == [(False, 0, 0), (False, 0, 0), (True, 1, 0)]
    assert acknowledger_of(batch[0]).settle_unlocked(batch[:1], rejected(told)) == ([], [])
    assert states()[0] == (True, 1, 0)


def test_a_stale_one_that_its_new_owner_has_locked_is_not_waited_for(batch: list[Delivery]) -> None:
    told: list[Delivery] = []
    with raw_connection() as other, connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
        other.execute(LOCK, [batch[1].offset])
        assert acknowledger_of(batch[0]).settle_unlocked(batch, rejected(told)) == ([], [batch[1]])
        other.rollback()
        cursor.execute("SET SESSION innodb_lock_wait_timeout = DEFAULT")
    assert told == [batch[0], batch[2]]
