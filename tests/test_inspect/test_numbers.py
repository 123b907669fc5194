"""The numbers of topics and groups."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_mqueue.inspect import (
    group_figures,
    holds,
    lag,
    latency,
    rates,
    subscribers,
    topic_figures,
    topics,
)

from .scene import GROUP, TOPIC, one_of_each

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_message_in_each_status() -> None:
    one_of_each()
    (known,) = topics().topics
    assert (known.topic, known.groups) == (TOPIC, (GROUP, "stock"))
    found = group_figures([(TOPIC, GROUP), (TOPIC, "stock")])
    mine = found[TOPIC, GROUP]
    numbers = (mine.pending, mine.in_flight, mine.waiting, mine.scheduled, mine.dead)
    assert [(one.value, one.how) for one in numbers] == [(1, "exact")] * 5
    assert found[TOPIC, "stock"].pending.value == 5
    held = topic_figures([TOPIC])[TOPIC]
    assert (held.kept.value, held.scheduled.value, held.dead.value) == (5, 1, 1)
    both = rates([(TOPIC, GROUP), (TOPIC, None)])
    mine_rates = both[TOPIC, GROUP]
    assert mine_rates.finished is not None
    assert (
        mine_rates.published.total.value,
        mine_rates.finished.total.value,
        mine_rates.dead.total.value,
    ) == (
        5,
        2,
        1,
    )
    assert both[TOPIC, None].finished is None
    whole = latency(TOPIC, GROUP).whole
    assert whole.done is not None
    assert whole.done.of == 2
    assert whole.done.p50 < timedelta(minutes=1)
    behind = lag(TOPIC, GROUP)
    assert behind.total.value == 3
    assert [hold.reason for hold in holds(TOPIC)] == ["retention"]
    (worker,) = subscribers(TOPIC, GROUP)
    assert (worker.name, worker.status, worker.in_flight.value) == ("worker-1", "alive", 1)
