"""Messages with ``delay=`` or ``at=`` come soon after their time, never before. They cost other messages nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_mqueue import (
    NotRegistered,
    OutgoingMessage,
    Subscription,
    publish,
    publish_many,
    scheduled,
    subscribe,
)
from tests.support.statements import CALM, counted
from tests.support.subscribers import QUICK, consume, consume_rest, settle, watermark
from tests.support.transactions import rolled_back, statements, wait

from .helping import ids_in_log, now, waiting

pytestmark = pytest.mark.django_db(transaction=True)

TOMORROW = timedelta(days=1)


def test_a_delayed_message_comes_when_it_is_due_and_not_before() -> None:
    """At the latest, the third poll after the due time returns it: within a second if ``POLL_INTERVAL`` is 0.1 s."""
    began = now()
    published = publish("t", {"n": 1}, id="a", delay=1.2, kind="reminder", headers={"x": 1})
    assert (published.created, published.id) == (True, "a")
    (message,) = scheduled("t")
    assert message.at - began >= timedelta(seconds=1.2)
    too_late = 0
    with Subscription("t", "g") as subscription:
        while not (deliveries := subscription.poll()):
            too_late += now() > message.at
            assert too_late < 4
            wait(0.02)
    (delivery,) = deliveries
    assert now() >= delivery.published_at >= message.at, "published when it fell due"
    assert (delivery.id, delivery.payload, delivery.kind, delivery.headers) == (
        "a",
        {"n": 1},
        "reminder",
        {"x": 1},
    )
    assert delivery.attempt == 1


def test_a_message_for_a_time_of_day_and_one_for_the_past() -> None:
    at = now() + timedelta(milliseconds=800)
    publish("t", "later", at=at)
    publish("t", "long ago", at=now() - timedelta(days=3))
    with Subscription("t", "g") as subscription:
        first, second = consume(subscription, 2)
    assert (first.payload, second.payload) == ("long ago", "later")
    assert now() >= at


def test_a_rolled_back_message_does_not_wait() -> None:
    with rolled_back():
        publish("t", 1, delay=60)
    assert waiting("t") == []


def test_messages_of_a_key_come_in_the_order_of_their_times_and_of_their_publication() -> None:
    at = now() + timedelta(seconds=1)
    publish("t", 3, key="k", at=at + timedelta(milliseconds=2))
    publish("t", 1, key="k", at=at)
    publish("t", 2, key="k", at=at + timedelta(milliseconds=1))
    publish_many("t", [OutgoingMessage(n, key="k", at=at + timedelta(milliseconds=2)) for n in range(4, 30)])
    with override_settings(MQUEUE=QUICK), Subscription("t", "g", batch_size=100) as subscription:
        got = consume(subscription, 29)
    assert [delivery.payload for delivery in got] == list(range(1, 30))


def test_waiting_messages_pin_no_watermark_and_take_nothing_from_those_that_are_due() -> None:
    """Two thousand messages wait. A poll costs as much as without them, and the watermark advances."""
    costs = []
    for topic, later in (("empty", 0), ("full", 2000)):
        publish_many(topic, [OutgoingMessage(n, key="k", delay=TOMORROW) for n in range(later)])
        newest = [publish(topic, n, key="k").offset for n in range(20)][-1]
        with override_settings(MQUEUE=CALM), Subscription(topic, "g") as subscription:
            consume(subscription, 20)
            settle(subscription)
            assert watermark(topic, "g", "k") >= newest
            consume_rest(subscription)
            with counted() as cost:
                assert subscription.poll() == []
            costs.append(cost)
        assert len(waiting(topic)) == later
    assert costs[0].count == costs[1].count == 1, costs[1]
    assert costs[1].rows <= costs[0].rows + 2, costs[1]


def test_publishing_later_is_one_statement_and_three_where_an_id_is_given() -> None:
    with statements() as seen:
        publish("t", 1, delay=60)
    assert len(seen) == 1
    with statements() as seen:
        publish("t", 1, delay=60, id="a")
    assert len([sql for sql in seen if not sql.startswith("SET")]) == 3


def test_many_at_once_some_now_and_some_later() -> None:
    messages = [
        OutgoingMessage("now"),
        OutgoingMessage("later", delay=60, id="a"),
        "plain",
        OutgoingMessage("at", at=now() + TOMORROW),
        OutgoingMessage("again", delay=90, id="a"),
    ]
    published = publish_many("t", messages)
    assert [one.created for one in published] == [True, True, True, True, False]
    assert [published[4].offset, published[4].id] == [published[1].offset, "a"]
    assert len(ids_in_log("t")) == 2
    assert [message.payload for message in scheduled("t")] == ["later", "at"]
    repeated = publish_many("t", messages[1:2])
    assert (repeated[0].created, repeated[0].offset) == (False, published[1].offset)


def test_for_one_group_alone() -> None:
    subscribe("t", "mine")
    subscribe("t", "other")
    publish("t", "mine alone", delay=0.2, group="mine")
    with (
        override_settings(MQUEUE=QUICK),
        Subscription("t", "mine") as mine,
        Subscription("t", "other") as other,
    ):
        assert [d.payload for d in consume(mine, 1)] == ["mine alone"]
        assert consume_rest(other) == []
    with pytest.raises(NotRegistered, match="nobody"):
        publish("t", 1, delay=60, group="nobody")
    with pytest.raises(NotRegistered, match="nobody"):
        publish_many("t", [OutgoingMessage(1, delay=60, group="nobody")])
    assert waiting("t") == []


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"delay": 1, "at": datetime(2030, 1, 1)}, ValueError, "delay and at"),
        ({"delay": -1}, ValueError, "delay must be at least 0"),
        ({"delay": "soon"}, TypeError, "delay must be a timedelta"),
        ({"delay": float("nan")}, ValueError, "delay"),
        ({"delay": timedelta(days=99_999)}, ValueError, "hundred years"),
        ({"at": datetime(2030, 1, 1)}, ValueError, "at must be an aware datetime"),
        ({"at": 5}, TypeError, "at must be an aware datetime"),
        ({"delay": 5, "on_duplicate": "replace"}, ValueError, "replace.* needs the id"),
        ({"on_duplicate": "merge"}, ValueError, "on_duplicate"),
    ],
)
def test_bad_times_are_refused_before_any_statement(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with statements() as seen, pytest.raises(error, match=text):
        publish("t", 1, **arguments)
    assert seen == []


def test_nobody_consumes_the_messages_that_wait() -> None:
    publish("t", 1, delay=60)
    with pytest.raises(ValueError, match="reserved for scheduled"):
        subscribe("t_scheduled", "g")
    with pytest.raises(ValueError, match="reserved for scheduled"):
        Subscription("t_scheduled", "g")


def test_what_fell_due_while_nobody_was_there_comes_with_the_first_worker() -> None:
    publish_many("t", [OutgoingMessage(n, delay=0.001) for n in range(1200)])
    with override_settings(MQUEUE=QUICK), Subscription("t", "g", batch_size=500) as subscription:
        got = consume(subscription, 1200)
    assert sorted(delivery.payload for delivery in got) == list(range(1200))
    assert waiting("t") == []
