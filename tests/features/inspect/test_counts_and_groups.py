"""``counts`` and ``groups`` report the state of groups in numbers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from django_mqueue import (
    NotRegistered,
    OutgoingMessage,
    Subscription,
    pause,
    publish,
    publish_many,
    subscribe,
)
from django_mqueue.inspect import Counts, counts, groups
from tests.support.statements import counted
from tests.support.subscribers import consume, poll_until, settle

from .scene import GROUP, TOPIC, one_of_each, published, published_at, scheduled

pytestmark = pytest.mark.django_db(transaction=True)


def test_each_status_is_counted() -> None:
    one_of_each()
    assert counts(TOPIC, group=GROUP) == Counts(1, 1, 1, 1, 1)
    assert counts(TOPIC, group="stock") == Counts(5, 0, 0, 1, 0)
    assert counts(TOPIC, group=GROUP, key="waiting") == Counts(0, 0, 1, 0, 0)


def test_counting_ends_at_the_cap() -> None:
    published(*range(30))
    scheduled(1, 2, 3, group=GROUP)
    subscribe(TOPIC, GROUP)
    assert counts(TOPIC, group=GROUP, cap=3) == Counts(3, 0, 0, 3, 0, frozenset({"pending"}))
    assert counts(TOPIC, group=GROUP, cap=30) == Counts(30, 0, 0, 3, 0)
    assert counts(TOPIC, group=GROUP, scan_limit=10).more == {"pending"}


def test_what_cannot_be_counted_is_refused() -> None:
    subscribe(TOPIC, GROUP)
    with pytest.raises(NotRegistered):
        counts(TOPIC, group="nobody")
    with pytest.raises(TypeError, match="group must be"):
        counts(TOPIC, group=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cap"):
        counts(TOPIC, group=GROUP, cap=0)
    with pytest.raises(ValueError, match="topic"):
        groups("")


def test_groups_with_their_oldest_open_message() -> None:
    """One group has acked all but a waiting message, and one has acked all.

    One began later, and one is paused and never ran.
    """
    offsets = [publish(TOPIC, n, key=f"k{n}").offset for n in range(3)]
    moment = published_at([offsets[1]], 1_700_000_000_000)
    for group in ("paused", "done"):
        subscribe(TOPIC, group)
    subscribe(TOPIC, "late", "latest")
    pause(TOPIC, "paused")
    with Subscription(TOPIC, "done") as subscription:
        consume(subscription, 3)
        settle(subscription)
    with Subscription(TOPIC, GROUP, "worker-1") as subscription:
        for delivery in poll_until(subscription, 3):
            if delivery.payload == 1:
                delivery.nack(delay=100)
            else:
                delivery.ack()
        settle(subscription)
        found = {one.group: one for one in groups(TOPIC)}
    assert list(found) == [GROUP, "done", "late", "paused"]
    mine = found[GROUP]
    assert (mine.oldest, mine.oldest_published_at, mine.subscribers) == (offsets[1], moment, ("worker-1",))
    assert mine.oldest_published_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert (found["done"].oldest, found["done"].subscribers, found["done"].paused) == (None, (), False)
    assert found["late"].oldest is None
    assert found["late"].start > 0
    assert (found["paused"].oldest, found["paused"].paused) == (offsets[0], True)


def test_more_keys_than_are_looked_at() -> None:
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n:02d}") for n in range(30)])
    subscribe(TOPIC, GROUP)
    (few,) = groups(TOPIC, scan_limit=10)
    (all_of_them,) = groups(TOPIC)
    assert (few.partial, all_of_them.partial) == (True, False)
    with counted() as cost:
        groups(TOPIC)
    assert cost.count <= 12, cost
