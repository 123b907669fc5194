"""A query reads fewer topics than its checkpoint names. It continues, and its group can leave the other topics.

The tests call the planner as Spark calls it. Nothing here needs Spark.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from django.test import override_settings

from django_mqueue import publish_many, unsubscribe
from django_mqueue.exceptions import LogGap
from django_mqueue.models import SubscriberHeartbeat
from django_mqueue.spark.database import following
from django_mqueue.spark.reader import planning
from django_mqueue.spark.streams.checkpoint import Offsets
from django_mqueue.spark.streams.query import Query
from tests.support.subscribers import QUICK, collect, in_log

from .conftest import Make
from .streams import newest, stands_at

pytestmark = pytest.mark.django_db(transaction=True)

GROUP = "archive"
BOTH = "orders,payments"


def rows(query: Query, begun: Offsets, ended: Offsets) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in query.ranges(begun, ended):
        found[each.topic] = found.get(each.topic, 0) + each.rows
    return found


def publish_both() -> None:
    for topic in BOTH.split(","):
        publish_many(topic, range(3))


def planned(make: Make) -> tuple[Offsets, Offsets]:
    """Plan a batch of both topics. The checkpoint does not show if it was run."""
    publish_both()
    query = make(subscribe=BOTH)
    begun = query.initial()
    ended = query.latest(begun, None)
    query.stop()
    return begun, ended


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_topic_that_is_read_no_more_is_let_go(make: Make, strict: str) -> None:
    _, ended = planned(make)
    both = make(subscribe=BOTH)
    both.done(ended)
    both.stop()
    publish_both()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = make(subscribe="orders", failOnDataLoss=strict)
        first.done(ended)
        assert unsubscribe("payments", GROUP)
        later = first.latest(ended, None)
        assert rows(first, ended, later) == {"orders": 3}
        first.done(later)
        first.stop()
        again = make(subscribe="orders", failOnDataLoss=strict)
        again.done(later)
    assert stands_at(GROUP) == newest()
    assert following.position("payments", GROUP, using="default") is None
    assert not SubscriberHeartbeat.objects.filter(topic="payments").exists()
    again.stop()
    with pytest.raises(LogGap, match="unsubscribed from topic 'payments'"):
        make(subscribe=BOTH).done(later)


def test_a_topic_that_no_pattern_matches_any_more_is_let_go(make: Make) -> None:
    _, ended = planned(make)
    unsubscribe("payments", GROUP)
    query = make(subscribePattern="ord.*")
    query.done(ended)
    query.stop()
    assert stands_at(GROUP) == newest()


def test_dead_letters_of_a_topic_are_let_go(make: Make) -> None:
    """Dead letters are in a topic with another name."""
    publish_both()
    query = make(subscribe=BOTH, table="dead_letters")
    begun = query.initial()
    query.done(begun)
    query.stop()
    unsubscribe("payments_dlq", GROUP)
    make(subscribe="orders", table="dead_letters").done(begun)
    unsubscribe("orders_dlq", GROUP)
    with pytest.raises(LogGap, match="unsubscribed from topic 'orders_dlq'"):
        make(subscribe="orders", table="dead_letters").done(begun)


def test_a_batch_that_was_planned_is_whole(make: Make) -> None:
    """The checkpoint is then past the batch, also for a later query that reads the topic again."""
    begun, ended = planned(make)
    one = make(subscribe="orders")
    assert rows(one, begun, ended) == {"orders": 3, "payments": 3}
    one.done(ended)
    one.stop()
    assert (stands_at(GROUP), stands_at(GROUP, "payments")) == (newest(), 0), (
        "nobody reads payments for it now"
    )
    publish_both()
    both = make(subscribe=BOTH)
    both.done(ended)
    assert rows(both, ended, both.latest(ended, None)) == {"orders": 3, "payments": 3}
    assert stands_at(GROUP, "payments") == in_log("payments")[2]


def test_a_batch_that_was_planned_is_run_without_what_was_let_go(make: Make) -> None:
    begun, ended = planned(make)
    unsubscribe("payments", GROUP)
    one = make(subscribe="orders")
    assert rows(one, begun, ended) == {"orders": 3}
    one.done(ended)
    assert stands_at(GROUP) == newest()
    assert following.position("payments", GROUP, using="default") is None


def test_what_is_let_go_while_a_batch_is_planned_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = planned(make)
    ranges = planning.ranges

    def late(*given: Any) -> Any:
        unsubscribe("payments", GROUP)
        with override_settings(MQUEUE=QUICK):
            collect("payments")
        return ranges(*given)

    with monkeypatch.context() as patch:
        patch.setattr("django_mqueue.spark.streams.query.ranges", late)
        with pytest.raises(LogGap, match="unsubscribed from topic 'payments'"):
            make(subscribe="orders").ranges(begun, ended)
    assert rows(make(subscribe="orders"), begun, ended) == {"orders": 3}
