"""A message that waits at the head adds no cost, with any number of acknowledged messages behind it."""

from __future__ import annotations

import math
from functools import partial

import pytest
from django.db import connection
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many
from django_mqueue.models import DeliveryState, Offset
from tests.support.fixtures import with_settings
from tests.support.processes import wait_until
from tests.support.statements import CALM, Cost, counted
from tests.support.subscribers import engine_of

pytestmark = pytest.mark.django_db(transaction=True)


calm = with_settings(MQUEUE=CALM)


def behind_a_stuck_head(topic: str, count: int) -> Subscription:
    """Return a subscriber that nacked a key's first message for an hour, and acked ``count`` messages behind it."""
    publish(topic, "head", key="k")
    publish_many(topic, [OutgoingMessage(n, key="k") for n in range(count)])
    subscription = Subscription(topic, "g", batch_size=1000).open()
    (head,) = subscription.poll(max_messages=1)
    head.nack(delay=3600)
    done = 0
    while done < count:
        deliveries = wait_until(lambda: subscription.poll(max_messages=1000), "the next")
        subscription.ack(deliveries)
        done += len(deliveries)
    analyze()
    return subscription


def analyze() -> None:
    """Update the statistics, as the servers do some seconds after a tenth of a table has changed.

    The number of partitions in the statistics decides how partitions are searched: with one statement more, or less.
    """
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE queue_messages")
        cursor.fetchall()


def ticks(subscription: Subscription) -> list[Cost]:
    """Return the costs of 24 polls. In every eighth, settling, watermarks and second looks are due, too.

    Before every third poll, a message is published. The poll claims it and acks it.
    """
    engine = engine_of(subscription)
    tail, costs, got = engine.tailer.tails[subscription.topic], [], 0
    for n in range(24):
        if n % 3 == 0:
            publish(subscription.topic, "new", key="k")
        tail.settle_at = tail.sweep_at = engine.watermarks._next = math.inf if n % 8 else -math.inf
        with counted() as cost:
            deliveries = subscription.poll()
            subscription.ack(deliveries)
        got += len(deliveries)
        costs.append(cost)
    assert got == 8, "later ones flow"
    return costs


def dearest(costs: list[Cost]) -> tuple[int, int]:
    """Return the most statements and the most rows read of any poll."""
    return max(cost.count for cost in costs), max(cost.rows for cost in costs)


@pytest.mark.parametrize("many", [1_000, 10_000])
def test_one_nacked_at_the_head_and_ten_thousand_acked_behind_it(many: int) -> None:
    """Later messages are delivered. A poll's statements and rows do not grow with the messages behind the head."""
    costs = {}
    for count in (100, many):
        subscription = behind_a_stuck_head(f"t{count}", count)
        ticks(subscription)  # finish the work that the thousands of messages left
        costs[count] = ticks(subscription)
        subscription.close()
    few, lots = dearest(costs[100]), dearest(costs[many])
    # In some polls several kinds of periodic work meet: five statements more. To read all that wait takes 200.
    assert lots[0] <= few[0] + 5, max(costs[many], key=lambda cost: cost.count)
    assert lots[1] <= few[1] * 1.2 + 20, max(costs[many], key=lambda cost: cost.rows)
    assert sum(cost.rows for cost in costs[many]) <= sum(cost.rows for cost in costs[100]) * 1.2 + 100
    stuck = Offset.objects.get(topic=f"t{many}", partition_key="k")
    assert stuck.offset_acked < DeliveryState.objects.get(topic=f"t{many}", acked=False).message_offset
    assert stuck.scan_offset > stuck.offset_acked + many, "where delivery goes on is remembered"


@pytest.mark.parametrize("many", [10_000])
def test_a_new_owner_does_not_read_all_that_is_done_behind_a_stuck_head(many: int) -> None:
    """Taking over costs the same for a hundred and for ten thousand messages."""
    costs = {}
    for count in (100, many):
        behind = behind_a_stuck_head(f"t{count}", count)
        ticks(behind)
        behind.close()
        heir = Subscription(f"t{count}", "g").open()
        with counted() as cost:
            assert heir.poll() == []
        costs[count] = cost
        publish(f"t{count}", "after", key="k")
        wait_until(heir.poll, "it goes on")
        heir.close()
    assert costs[many].count == costs[100].count, costs[many]
    assert costs[many].rows <= costs[100].rows * 1.2 + 20, costs[many]


@pytest.mark.parametrize("many", [10_000])
def test_many_that_wait_for_their_retry_hold_up_nothing(many: int) -> None:
    """Many messages wait an hour for their retry. New messages are delivered, at the same cost."""
    costs = {}
    for count in (100, many):
        topic = f"t{count}"
        publish_many(topic, [OutgoingMessage(n, key="k") for n in range(count)])
        subscription = Subscription(topic, "g", batch_size=1000).open()
        waiting = 0
        while waiting < count:
            deliveries = wait_until(partial(subscription.poll, 1000), "the next")
            waiting += len(deliveries)
            engine_of(subscription).acknowledger.return_unstarted(deliveries)
            DeliveryState.objects.filter(topic=topic).update(invisible_until=10**14)
            subscription.close()
            subscription.open()
        ticks(subscription)
        costs[count] = ticks(subscription)
        subscription.close()
    few, lots = dearest(costs[100]), dearest(costs[many])
    # In some polls several kinds of periodic work meet: five statements more. To read all that wait takes 200.
    assert lots[0] <= few[0] + 5, max(costs[many], key=lambda cost: cost.count)
    assert lots[1] <= few[1] * 1.2 + 20, max(costs[many], key=lambda cost: cost.rows)


def test_a_page_of_collection_is_bounded() -> None:
    """Even behind a stuck head, one page reads about a thousand rows of the log, and only a few columns of each."""
    subscription = behind_a_stuck_head("t", 3_000)
    ticks(subscription)
    with override_settings(MQUEUE={**CALM, "GC_INTERVAL": 0.01, "RETENTION": 0}):
        subscription._subscriber.collector._next = 0.0  # type: ignore[union-attr]
        for _ in range(10):
            with counted() as cost:
                subscription.poll()
            assert cost.rows <= 1_200, cost
    subscription.close()
