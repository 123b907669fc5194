"""A poll costs the same for 5,000 partitions as for 5."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from django_mqueue import Delivery, OutgoingMessage, StaleDelivery, Subscription, publish_many, subscribe
from django_mqueue.models import PartitionLease
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
from tests.support.fixtures import with_settings
from tests.support.processes import wait_until
from tests.support.running import Seen, registered
from tests.support.statements import CALM, Cost, counted
from tests.support.subscribers import engine_of, settle

pytestmark = pytest.mark.django_db(transaction=True)


calm = with_settings(MQUEUE={**CALM, "IDLE_POLL_INTERVAL": 0.001})


def fill(topic: str, partitions: int, each: int = 1) -> None:
    publish_many(topic, [OutgoingMessage(n, key=f"k{k:05d}") for n in range(each) for k in range(partitions)])


def consume_all(subscription: Subscription, count: int) -> None:
    got = 0
    while got < count:
        deliveries = wait_until(lambda: subscription.poll(max_messages=1000), "the next")
        subscription.ack(deliveries)
        got += len(deliveries)


def polled(subscription: Subscription) -> Cost:
    with counted() as cost:
        assert subscription.poll() == []
    return cost


def come_to_rest(subscription: Subscription) -> None:
    """Poll until watermarks and settling are finished. Then most polls are one statement."""
    quiet = 0

    def rest() -> bool:
        nonlocal quiet
        quiet = quiet + 1 if polled(subscription).count <= 1 else 0
        return quiet >= 3

    def has_settled() -> bool:
        settle(subscription)
        return bool(polled(subscription)) and all_watermarks_have_moved(subscription.topic)

    wait_until(has_settled, "the watermarks move")
    wait_until(rest, "nothing is left to do", every=0.05)


def cheapest(polls: Iterable[Cost]) -> Cost:
    """Return the cost of the poll with the fewest statements. In the others, settling or a watermark was due, too."""
    return min(polls, key=lambda cost: (cost.count, cost.rows))


def all_watermarks_have_moved(topic: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM queue_messages m LEFT JOIN queue_offsets o ON o.consumer_group = 'g'"
            " AND o.topic = m.topic AND o.partition_key = m.partition_key"
            " WHERE m.topic = %s AND COALESCE(o.offset_acked, 0) < m.`offset`",
            [topic],
        )
        return not cursor.fetchone()[0]


def idle_costs(partitions: int) -> tuple[Cost, Cost]:
    """Return the cost of a poll with nothing due, and with heartbeat, renewal, discovery and collection due."""
    topic = f"t{partitions}"
    fill(topic, partitions)
    with Subscription(topic, "g") as subscription:
        consume_all(subscription, partitions)
        assert PartitionLease.objects.filter(topic=topic).exclude(holder="").count() == partitions
        come_to_rest(subscription)
        quiet = cheapest(polled(subscription) for _ in range(6))
        due = cheapest(polled_with_all_due(subscription) for _ in range(6))
    return quiet, due


def polled_with_all_due(subscription: Subscription) -> Cost:
    engine = engine_of(subscription)
    engine.membership._renew_at = engine.membership._beat_at = engine.collector._next = -math.inf
    return polled(subscription)


@pytest.mark.parametrize("partitions", [200, 5000])
def test_an_idle_tick_costs_the_same_for_5000_partitions_as_for_5(partitions: int) -> None:
    """An idle poll is one statement. With all periodic work due, it is at most 15, as many as for five partitions."""
    few, few_due = idle_costs(5)
    many, many_due = idle_costs(partitions)
    assert (few.count, few.commits) == (many.count, many.commits) == (1, 0), many
    assert many_due.count == few_due.count, many_due
    assert 5 <= many_due.count <= 15, many_due


def test_an_idle_tick_does_not_grow_with_the_history() -> None:
    """The number of rows read is also the same, with 10 messages behind it and with 1,500."""
    costs = []
    for topic, each in (("short", 2), ("long", 300)):
        fill(topic, 5, each)
        with Subscription(topic, "g", batch_size=1000) as subscription:
            consume_all(subscription, 5 * each)
            come_to_rest(subscription)
            costs.append(cheapest(polled(subscription) for _ in range(6)))
    assert costs[0].count == costs[1].count == 1
    assert costs[1].rows <= costs[0].rows + 2, costs[1]


def test_a_claim_over_many_partitions_is_at_most_four_statements_and_one_commit() -> None:
    """The poll claims 100 messages of 100 partitions. It also reads the tail, which does not count here."""
    fill("t", 100, each=2)
    with Subscription("t", "g") as subscription:
        assert len(subscription.poll(max_messages=100)) == 100
        with counted() as cost:
            deliveries = subscription.poll(max_messages=100)
        assert len(deliveries) == 100
        assert len({delivery.key for delivery in deliveries}) >= 50
        claim = [sql for sql in cost.statements if "queue_messages_tail" not in sql]
        assert len(claim) <= 4, cost
        assert cost.commits == 1, cost


def test_a_claim_of_retries_is_at_most_four_statements_and_one_commit() -> None:
    """The retries belong to twenty partitions."""
    fill("t", 20, each=2)
    with Subscription("t", "g", batch_size=1) as subscription:
        for delivery in subscription.poll():
            delivery.nack(delay=0)
        come: list[Delivery] = []
        with counted() as cost:
            come += subscription.poll()
        assert {delivery.attempt for delivery in come} == {2}
        claim = [sql for sql in cost.statements if "queue_messages_tail" not in sql]
        assert len(claim) <= 4, cost
        assert cost.commits == 1, cost


def claim_of_news(subscription: Subscription, count: int) -> Cost:
    engine = engine_of(subscription)
    fill("t", count)
    engine.watermarks._next = engine.tailer.tails["t"].settle_at = math.inf  # Not in the counted poll.
    with counted() as cost:
        deliveries = subscription.poll()
    assert len(deliveries) == count
    subscription.ack(deliveries)
    return cost


@pytest.mark.parametrize("count", [1, 50])
def test_new_messages_in_owned_partitions_cost_the_tail_and_the_claims_three_statements(count: int) -> None:
    """The test publishes a single message, or fifty messages in fifty of two hundred partitions."""
    fill("t", 200)
    with Subscription("t", "g") as subscription:
        consume_all(subscription, 200)
        come_to_rest(subscription)
        cost = cheapest(claim_of_news(subscription, count) for _ in range(6))
        assert (cost.count, cost.commits) == (4, 1), cost


@pytest.mark.parametrize("count", [1, 100, 500])
def test_an_ack_of_many_is_a_statement_for_200_and_one_commit(count: int) -> None:
    fill("t", count)
    with Subscription("t", "g") as subscription:
        deliveries = subscription.poll(max_messages=count)
        assert len(deliveries) == count
        with counted() as cost:
            subscription.ack(deliveries)
        assert (cost.count, cost.commits) == (-(-count // 200), 1), cost


def test_an_ack_of_many_with_a_stale_one_is_one_statement_more() -> None:
    fill("t", 10)
    with Subscription("t", "g") as subscription:
        deliveries = subscription.poll()
        PartitionLease.objects.filter(partition_key="k00003").update(holder="another")
        with counted() as cost, pytest.raises(StaleDelivery):
            subscription.ack(deliveries)
        assert (cost.count, cost.commits) == (2, 1), cost


@pytest.mark.parametrize("topics", [1, 8])
def test_an_idle_process_of_many_handlers_asks_at_most_two_statements_a_tick(topics: int) -> None:
    """One of them reads the tails of all its topics."""
    for n in range(topics):
        subscribe(f"t{n}", "g")
    statements: list[str] = []

    def ticks() -> list[int]:
        """Return the indexes of the statements that read the tails."""
        return [place for place, sql in enumerate(statements) if "(SELECT topic, `offset`" in sql]

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append(sql)
        if len(ticks()) == 25:
            runner.stop()
        return execute(sql, params, many, context)

    with ExitStack() as stack:
        for n in range(topics):
            stack.enter_context(registered(f"t{n}", Seen()))
        with connection.execute_wrapper(note):
            runner = Runner(handlers([f"t{n}" for n in range(topics)]), RunOptions(poll_interval=0.02))
            runner.run()
    between = statements[ticks()[4] : ticks()[24]]
    assert len(between) <= 2 * 20, "\n".join(sql[:200] for sql in between)


@pytest.mark.parametrize("partitions", [2, 300])
def test_a_discovery_of_an_idle_process_is_two_statements(partitions: int) -> None:
    """It writes the heartbeat, and reads the group's state. Commits and changes of autocommit would also count."""
    subscribe("t", "g")
    fill("t", partitions)
    statements: list[str] = []

    def discoveries() -> list[int]:
        return [place for place, sql in enumerate(statements) if sql.startswith("SELECT 'offsets'")]

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append(sql)
        if not runner._stopping and rests(runner) and len(discoveries()) > len(before) + 10:
            runner.stop()
        elif not runner._stopping and not rests(runner):
            before[:] = discoveries()
        return execute(sql, params, many, context)

    before: list[int] = []
    settings = {**CALM, "DISCOVERY_INTERVAL": 0.02, "IDLE_POLL_INTERVAL": 3600, "WAKE_WORKERS": "host"}
    seen = Seen()
    with override_settings(MQUEUE=settings), registered("t", seen), connection.execute_wrapper(note):
        runner = Runner(handlers(["t"]), RunOptions(poll_interval=3600))
        runner.run()
    assert len(seen.messages) == partitions
    first, *_, last = discoveries()[len(before) + 1 : -1]
    between = statements[first:last]
    assert len(between) == 2 * len([sql for sql in between if sql.startswith("SELECT 'offsets'")]), between
    assert sum(sql.startswith("INSERT INTO queue_subscriber_heartbeats") for sql in between) * 2 == len(
        between
    )


def rests(runner: Runner) -> bool:
    """Return whether the worker has no planned read: nothing is in work, and everything is settled."""
    idle = runner._starter.is_idle and not any(engine.state.dirty for engine in runner._joined)
    return idle and runner._polling.due_in(ready=True) > 60
