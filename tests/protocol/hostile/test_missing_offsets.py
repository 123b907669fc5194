"""Holes in the tail of the log while a transaction stays open.

A hole has offsets of other topics, or offsets that are never used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.models import DeliveryState
from django_mqueue.protocol import tailer
from tests.support.statements import Cost, counted
from tests.support.subscribers import consume, consume_rest, engine_of, poll_until
from tests.support.transactions import HeldTransaction, rolled_back, wait, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"
MANY = 150
"""Messages with a hole behind each. In most tests they are several times as many as one statement reads."""

KINDS = ["other topics", "rolled back", "both"]


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits to 20 holes in one statement and 30 rows in one page."""
    monkeypatch.setattr(tailer, "RANGES", 20)
    monkeypatch.setattr(tailer, "ROWS", 30)


@contextmanager
def offered() -> Iterator[Counter[int]]:
    """Count how often each offset is offered to a claim of undelivered messages."""
    times: Counter[int] = Counter()

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("INSERT INTO queue_delivery_state"):
            offsets = sql.partition("WHERE m.`offset` IN (")[2].partition(")")[0]
            times.update(map(int, offsets.split(", ")))
        return execute(sql, params, many, context)

    connection.ensure_connection()
    with connection.execute_wrapper(look):
        yield times


def publish_with_holes(kind: str, count: int = MANY) -> None:
    """Publish ``count`` messages in one transaction. After each message comes an offset that the topic does not use."""
    with transaction.atomic():
        for n in range(count):
            publish(TOPIC, n, key=f"k{n % 10}")
            if kind == "other topics" or (kind == "both" and n % 2):
                publish("another", n)
            else:
                with rolled_back():
                    publish(TOPIC, "never", key="never")


def nothing(subscription: Subscription) -> bool:
    assert subscription.poll() == []
    return True


def look_twice(subscription: Subscription) -> None:
    """Poll until the tail has completed at least two passes over the holes. Nothing may be delivered."""
    tail = engine_of(subscription).tailer.tails[TOPIC]
    for _ in range(3):
        before = tail.sweep_at
        wait_until(
            lambda: nothing(subscription) and (tail.sweep_at > before and not tail.sweep_from),  # noqa: B023
            "a pass ends",
            every=0.01,
        )


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_behind_an_open_transaction_nothing_is_claimed_in_vain(kind: str, strict: bool) -> None:
    """One publish stays open, so nothing settles. Between the messages are more holes than one statement reads.

    Each message is offered to a claim once, however often the tail is read. The late message is delivered when its
    transaction commits.
    """
    subscribe(TOPIC, GROUP)
    with (
        HeldTransaction(lambda: publish(TOPIC, "late", key="k0")) as held,
        Subscription(TOPIC, GROUP, strict=strict) as subscription,
        offered() as times,
    ):
        subscription.poll()
        publish_with_holes(kind)
        consume(subscription, MANY)
        look_twice(subscription)
        publish_with_holes(kind, 20)
        consume(subscription, 20)
        assert set(times.values()) == {1}
        assert len(times) == MANY + 20
        held.commit()
        assert [d.payload for d in consume(subscription, 1)] == ["late"]
        assert set(times.values()) == {1}


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.parametrize("kind", KINDS)
def test_each_late_commit_among_many_holes_is_delivered_once(kind: str) -> None:
    """Transactions that began before, between and after the other messages commit in another order.

    The tail makes passes over the holes between their commits. The oldest transaction stays open until the end. Each
    message is offered once.
    """
    subscribe(TOPIC, GROUP)
    with (
        HeldTransaction(lambda: publish(TOPIC, "oldest", key="o")) as oldest,
        Subscription(TOPIC, GROUP) as subscription,
        HeldTransaction(lambda: publish_many(TOPIC, [OutgoingMessage("a", key="a")] * 3)) as first,
        offered() as times,
    ):
        subscription.poll()
        publish_with_holes(kind, MANY // 2)
        with HeldTransaction(lambda: publish(TOPIC, "b", key="b")) as second:
            publish_with_holes(kind, MANY // 2)
            consume(subscription, MANY // 2 * 2)
            look_twice(subscription)
            with HeldTransaction(lambda: publish(TOPIC, "c", key="c")) as third:
                publish_with_holes(kind, 5)
                consume(subscription, 5)
                second.commit()
                assert [d.payload for d in consume(subscription, 1)] == ["b"]
                first.commit()
                assert [d.payload for d in consume(subscription, 3)] == ["a"] * 3
                third.commit()
                assert [d.payload for d in consume(subscription, 1)] == ["c"]
        oldest.commit()
        assert [d.payload for d in consume(subscription, 1)] == ["oldest"]
        assert consume_rest(subscription) == []
        assert set(times.values()) == {1}
    assert not DeliveryState.objects.filter(acked=False).exists()


@pytest.mark.usefixtures("few_at_once")
def test_a_late_commit_of_another_topic_is_nothing_to_this_one() -> None:
    """A late message of another topic has an offset among holes that are done. This topic ignores it and continues."""
    for topic in (TOPIC, "another"):
        subscribe(topic, GROUP)
    with (
        HeldTransaction(lambda: publish(TOPIC, "late", key="k")) as held,
        HeldTransaction(lambda: publish("another", "late", key="k")) as other,
        Subscription(TOPIC, GROUP) as subscription,
        Subscription("another", GROUP) as elsewhere,
    ):
        subscription.poll()
        elsewhere.poll()
        publish_with_holes("other topics")
        consume(subscription, MANY)
        consume(elsewhere, MANY)
        look_twice(subscription)
        other.commit()
        assert [d.payload for d in consume(elsewhere, 1)] == ["late"]
        assert consume_rest(subscription) == []
        held.commit()
        assert [d.payload for d in consume(subscription, 1)] == ["late"]


def cost_of_second_looks(subscription: Subscription) -> Cost:
    """Return the cost of idle polls during at least 0.6 seconds, with at least one whole pass over the holes."""
    with counted() as cost:
        for _ in range(24):
            assert subscription.poll() == []
            wait(0.025)
    return cost


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.parametrize("kind", ["other topics", "rolled back"])
@override_settings(MQUEUE={"DISCOVERY_INTERVAL": 60, "GC_INTERVAL": 60})
def test_second_looks_do_not_grow_with_what_was_seen_behind_an_open_transaction(kind: str) -> None:
    """Offsets of other topics are read once. After that few holes remain, and those offsets are not read again.

    Offsets that are never used stay holes. Each statement reads a limited number of them.
    """
    subscribe(TOPIC, GROUP)
    count = 5 * tailer.RANGES
    with (
        HeldTransaction(lambda: publish(TOPIC, "late", key="k0")),
        Subscription(TOPIC, GROUP) as subscription,
    ):
        subscription.poll()
        costs = []
        for _ in range(2):
            publish_with_holes(kind, count)
            poll_until(subscription, lambda got: (subscription.ack(got), not_done() == 0)[1])
            look_twice(subscription)
            costs.append(cost_of_second_looks(subscription))
        holes = len(engine_of(subscription).tailer.tails[TOPIC].holes)
        once, twice = costs
        assert seen_again(once) == seen_again(twice) == 0
        assert holes <= (tailer.RANGES if kind == "other topics" else 2 * count + 2)
        assert most_ranges(twice) <= tailer.RANGES, str(twice)
        assert twice.rows <= 5 * once.rows + 300, f"{once.rows}, then {twice}"


def seen_again(cost: Cost) -> int:
    """Return how many offsets the statements read again in the log of all topics."""
    ranges = [
        re.search(r"\(PRIMARY\) WHERE `offset` BETWEEN (\d+) AND (\d+) ", sql) for sql in cost.statements
    ]
    return sum(max(int(found[2]) - int(found[1]) + 1, 0) for found in ranges if found)


def most_ranges(cost: Cost) -> int:
    return max(sql.count(" BETWEEN ") for sql in cost.statements)


def not_done() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM queue_messages m LEFT JOIN queue_delivery_state s ON s.consumer_group = %s"
            " AND s.topic = m.topic AND s.partition_key = m.partition_key AND s.message_offset = m.`offset`"
            " WHERE m.topic = %s AND COALESCE(s.acked, 0) = 0",
            [GROUP, TOPIC],
        )
        return int(cursor.fetchone()[0])
