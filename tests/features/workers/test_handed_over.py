"""A claim marks a message as handed exactly when a handler gets it, so each start counts as an attempt."""

from __future__ import annotations

import pytest
from django.db.models import F
from django.test import override_settings

from django_mqueue import Subscription, publish
from django_mqueue.models import DeliveryState
from tests.support.subscribers import QUICK, engine_of, poll_until

pytestmark = pytest.mark.django_db(transaction=True)


@override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 600, "LEASE_RENEWAL_INTERVAL": 200})
def test_what_is_not_due_yet_leaves_its_place_to_nobody() -> None:
    """A claim asks for three messages, one of them for a free thread. The first is due in memory, but not in SQL.

    The claim takes the second message ahead, and the worker must hand it over before it starts. Otherwise its
    attempt would not count: a message that kills its worker would return forever, each time as its first attempt.
    """
    with Subscription("orders", "g") as subscription:
        first = publish("orders", 1, key="k").offset
        poll_until(subscription, 1)[0].nack(delay=0)
        publish("orders", 2, key="k")
        publish("orders", 3, key="k")
        engine = engine_of(subscription)
        with engine.state.lock:
            engine.tailer.tick()
            DeliveryState.objects.filter(message_offset=first).update(
                invisible_until=F("invisible_until") + 60_000
            )
            deliveries = engine.claimer.claim(3, 1)
        assert [d.payload for d in deliveries] == [2, 3]
        handed = dict(DeliveryState.objects.filter(in_flight=True).values_list("message_offset", "handed"))
        assert {d.offset: d.status.handed for d in deliveries} == {o: bool(h) for o, h in handed.items()}
