"""Two subscribers have the same name. The heartbeat row of the name belongs to the newer one."""

from __future__ import annotations

import pytest

from django_mqueue import Subscription
from django_mqueue.models import SubscriberHeartbeat
from django_mqueue.store import heartbeats
from tests.support.subscribers import engine_of
from tests.support.transactions import Background, HeldTransaction

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]


def test_only_the_younger_one_of_a_name_beats() -> None:
    with Subscription("t", "g", name="twin") as old, Subscription("t", "g", name="twin") as new:
        assert heartbeats.beat("default", engine_of(new).state.holder)
        assert not heartbeats.beat("default", engine_of(old).state.holder)


def test_a_heartbeat_does_not_wait_for_its_row() -> None:
    """Another transaction has locked it. The next heartbeat is written again."""
    with Subscription("t", "g", name="one") as subscription:
        holder = engine_of(subscription).state.holder
        rows = SubscriberHeartbeat.objects.filter(subscriber_name="one")
        rows.update(heartbeat_at=1)
        with HeldTransaction(lambda: list(rows.select_for_update())) as held:
            with Background(lambda: heartbeats.beat("default", holder)) as beating:
                assert beating.result() is True
            assert rows.get().heartbeat_at == 1
            held.rollback()
        assert heartbeats.beat("default", holder)
        assert rows.get().heartbeat_at > 1
