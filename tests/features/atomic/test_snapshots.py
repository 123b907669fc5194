"""Acks and publishes in transactions that have already read, at REPEATABLE READ with MariaDB's snapshot isolation.

Other transactions renew leases and publish ids after the snapshot. Without the variable, as on MySQL, the results are
the same at any isolation level. The tests also run there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import F

from django_mqueue import (
    Message,
    OutgoingMessage,
    StaleDelivery,
    Subscription,
    cancel,
    publish,
    publish_many,
    reschedule,
)
from django_mqueue.models import DeliveryState, PartitionLease
from django_mqueue.models import Message as Row
from tests.protocol.interleavings.sides import ends as elsewhere
from tests.support.processes import database_ms, wait_until
from tests.support.running import Seen, registered, run
from tests.support.shop.models import Sale

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("repeatable_read")]

RECORD_CHANGED = 1020


def is_mariadb() -> bool:
    return bool(connection.mysql_is_mariadb)  # type: ignore[attr-defined]


def newest_renewal() -> int:
    return max(PartitionLease.objects.values_list("lease_renewed_at", flat=True))


def test_an_atomic_handler_whose_lease_is_renewed_after_its_first_read() -> None:
    publish("orders", 1)

    def handle(message: Message) -> None:
        assert not Sale.objects.exists()
        before = elsewhere(lambda: database_ms())
        wait_until(lambda: elsewhere(newest_renewal) > before, "the lease is renewed")
        Sale.objects.create(number=1)

    with registered("orders", seen := Seen(handle), atomic=True, retry=None):
        run(threads=2)
    assert [message.attempt for message in seen.messages] == [1]
    assert (Sale.objects.count(), DeliveryState.objects.get().acked) == (1, True)


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "postpone", "extend"])
def test_an_answer_in_a_transaction_of_the_callers(verb: str) -> None:
    publish("orders", 1)
    with Subscription("orders", "g") as subscription:
        (delivery,) = wait_until(subscription.poll, "it comes")
        with transaction.atomic():
            assert not Sale.objects.exists()
            elsewhere(lambda: PartitionLease.objects.update(lease_renewed_at=database_ms()))
            assert getattr(delivery, verb)(*([60] if verb == "extend" else []))
        state = DeliveryState.objects.get()
        assert (state.acked, state.in_flight) == (verb in ("ack", "reject"), verb == "extend")


@pytest.mark.parametrize("change", ["stolen", "delivered again", "finished"])
def test_more_time_for_what_became_anothers_after_the_first_read(change: str) -> None:
    """The caller's snapshot still shows the delivery as its own."""
    publish("orders", 1)
    with Subscription("orders", "g") as subscription:
        (delivery,) = wait_until(subscription.poll, "it comes")
        changes: dict[str, Callable[[], Any]] = {
            "stolen": lambda: PartitionLease.objects.update(holder="another"),
            "delivered again": lambda: DeliveryState.objects.update(delivery_token=F("delivery_token") + 1),
            "finished": lambda: DeliveryState.objects.update(acked=True, in_flight=False),
        }
        with transaction.atomic():
            assert DeliveryState.objects.get().in_flight
            elsewhere(changes[change])
            with pytest.raises(StaleDelivery):
                delivery.extend(60)


@pytest.mark.parametrize("many", [False, True])
def test_an_id_that_was_published_after_the_first_read(many: bool) -> None:
    with transaction.atomic():
        assert not Sale.objects.exists()
        first = elsewhere(lambda: publish("orders", 1, id="a", key="k"))
        if many:
            (again,) = publish_many("orders", [OutgoingMessage(2, id="a", key="k")])
        else:
            again = publish("orders", 2, id="a", key="k")
        assert (again.created, again.offset) == (False, first.offset)
    assert Row.objects.count() == 1


def test_what_was_scheduled_after_the_first_read() -> None:
    with transaction.atomic():
        assert not Sale.objects.exists()
        elsewhere(lambda: publish("orders", 1, id="a", key="k", delay=600))
        assert reschedule("orders", "a", key="k", delay=1200)
        assert not publish("orders", 2, id="a", key="k", delay=600).created
        assert publish("orders", 2, id="a", key="k", delay=600, on_duplicate="replace").replaced
        assert cancel("orders", "a", key="k")
    assert not Row.objects.exists()


def test_the_callers_own_rows_stay_guarded() -> None:
    """MariaDB's snapshot isolation refuses to overwrite a sale that has changed since it was read.

    MySQL overwrites it.
    """
    publish("orders", 1)
    Sale.objects.create(number=1)
    with Subscription("orders", "g") as subscription:
        (delivery,) = wait_until(subscription.poll, "it comes")
        refused: list[int] = []
        try:
            with delivery.atomic():
                assert Sale.objects.get().number == 1
                publish("sold", 1, id="a")
                delivery.extend(60)
                elsewhere(lambda: Sale.objects.update(number=2))
                Sale.objects.update(number=3)
        except OperationalError as error:
            refused.append(error.args[0])
        assert refused == ([RECORD_CHANGED] if is_mariadb() else [])
        assert Sale.objects.get().number == (2 if is_mariadb() else 3)
        assert DeliveryState.objects.get().acked != is_mariadb()
