"""The time steps of rates and latencies, and the time from which their values are known."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest

from django_mqueue import Subscription, pause, publish, reset, subscribe
from django_mqueue.inspect import Rates, latency, rates
from django_mqueue.models import DeliveryState, Message, Offset
from django_mqueue.policy.durations import moment_ms
from django_mqueue.store.queries import group_rows
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume, settle

from .scene import GROUP, TOPIC

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = 60_000
HOURS_AGO = 3 * 60 * MINUTE


kept = with_settings(MQUEUE={**QUICK, "RETENTION": 7 * 86_400})


@pytest.fixture
def done() -> None:
    """Let the group ack six messages. Its registration is much older."""
    subscribe(TOPIC, GROUP)
    with Subscription(TOPIC, GROUP) as subscription:
        for number in range(6):
            publish(TOPIC, number, key="k")
        consume(subscription, 6)
        settle(subscription)
    Offset.objects.filter(consumer_group=GROUP, partition_key="").update(updated_at=1)


def asked() -> Rates:
    return rates([(TOPIC, GROUP)])[TOPIC, GROUP]


@pytest.mark.usefixtures("done")
def test_the_steps_are_the_same_whenever_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages are published within two minutes.

    The values of each step do not depend on the second of the query.
    """
    now = int(time.time() * 1000) // MINUTE * MINUTE
    for number, row in enumerate(Message.objects.filter(topic=TOPIC)):
        Message.objects.filter(pk=row.pk).update(published_at=now - 5 * MINUTE + number * 20_000)
        DeliveryState.objects.filter(message_offset=row.pk).update(
            acked_at=now - 4 * MINUTE + number * 20_000
        )
    told: dict[datetime, set[tuple[int, int]]] = {}
    for later in (0, 1, 20_000, 59_999, 60_000, 95_500):
        monkeypatch.setattr(group_rows, "now_ms", lambda using, later=later: now + later)
        found = asked()
        assert found.finished is not None
        assert found.at is not None
        assert moment_ms("start", found.start) % MINUTE == 0
        assert moment_ms("at", found.at) == now + later
        assert timedelta(0) < found.start + 60 * found.step - found.at <= found.step
        for place, values in enumerate(zip(found.published.values, found.finished.values, strict=True)):
            told.setdefault(found.start + place * found.step, set()).add(values)
        assert moment_ms("start", latency(TOPIC, GROUP).start) % (5 * MINUTE) == 0
    assert {when: values for when, values in told.items() if len(values) > 1} == {}
    assert sorted(values for (values,) in told.values() if values != (0, 0)) == [(0, 3), (3, 0), (3, 3)]


@pytest.mark.usefixtures("done")
def test_what_a_reset_forgets_is_not_known() -> None:
    before = asked()
    assert before.finished_from == before.start
    reset(TOPIC, GROUP, "earliest")
    after = asked()
    assert after.finished is not None
    assert after.finished.total.value == 0
    assert after.finished.how == "at_least"
    registered = Offset.objects.get(consumer_group=GROUP, partition_key="").updated_at
    assert after.finished_from is not None
    assert moment_ms("from", after.finished_from) == registered


@pytest.mark.usefixtures("done")
def test_a_pause_forgets_nothing() -> None:
    """A pause changes the row of the registration, but the rates stay known from the same time."""
    first = Message.objects.filter(topic=TOPIC).earliest("offset").pk
    DeliveryState.objects.filter(message_offset=first).update(acked_at=int(time.time() * 1000) - HOURS_AGO)
    pause(TOPIC, GROUP)
    found = asked()
    assert found.finished_from == found.start
