"""``remove`` takes messages away from a group before they are delivered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

from django_mqueue import (
    NotRegistered,
    OutgoingMessage,
    StaleDelivery,
    Subscription,
    publish,
    publish_many,
    reset,
    subscribe,
)
from django_mqueue.inspect import messages, remove, send_to_front
from django_mqueue.models import DeliveryState, Message, PartitionLease
from django_mqueue.spark.database import following
from tests.support.fixtures import with_settings
from tests.support.subscribers import (
    QUICK,
    consume,
    consume_rest,
    engine_of,
    in_log,
    poll_until,
    settle,
    settle_and_collect,
    watermark,
    with_state,
)
from tests.support.transactions import HeldTransaction, rolled_back, statements, wait_until

from .scene import GROUP, TOPIC, one_of_each, published, scheduled

pytestmark = pytest.mark.django_db(transaction=True)


quick = with_settings(MQUEUE={**QUICK, "GC_INTERVAL": 3600})


@pytest.mark.parametrize(
    ("status", "count", "left"),
    [
        ("pending", 1, {"pending": "done"}),
        ("waiting", 1, {"waiting": "done"}),
        ("scheduled", 0, {}),
        ("dead", 1, {"dead": "done"}),
        (None, 2, {"pending": "done", "waiting": "done"}),
    ],
)
def test_each_status(status: str | None, count: int, left: dict[str, str]) -> None:
    """Messages that are done or in flight stay as they are.

    One group cannot remove a message that is scheduled for all.
    """
    offsets = one_of_each()
    assert remove(TOPIC, group=GROUP, status=status, dry_run=True) == count
    assert remove(TOPIC, group=GROUP, status=status) == count
    stands = {m.offset: m.status for m in messages(TOPIC, group=GROUP)}
    assert stands == {offset: left.get(name, name) for name, offset in offsets.items() if name != "scheduled"}
    assert len(messages(TOPIC, status="scheduled")) == 1
    assert [m.status for m in messages(TOPIC, group="stock")] == ["pending"] * 5
    assert remove(TOPIC, group=GROUP, status=status) == 0


def test_of_all_groups_at_once() -> None:
    one_of_each()
    scheduled("mine", group=GROUP)
    assert remove(TOPIC, group=None, dry_run=True) == 2 + 5 + 2
    assert remove(TOPIC, group=None) == 2 + 5 + 2
    assert messages(TOPIC, status="scheduled").messages == []
    assert messages(TOPIC, group="stock", status="pending").messages == []
    assert [m.id for m in messages(TOPIC, status="dead")] == ["dead"]
    assert remove(TOPIC, group=None, status="dead") == 1


def test_a_group_removes_what_is_scheduled_for_it_alone() -> None:
    subscribe(TOPIC, GROUP)
    scheduled("mine", group=GROUP)
    scheduled("all")
    scheduled("theirs", group="stock")
    assert remove(TOPIC, group=GROUP) == 1
    assert [m.payload for m in messages(TOPIC, status="scheduled")] == ["all", "theirs"]


def test_by_filter_limit_and_page() -> None:
    subscribe(TOPIC, GROUP)
    publish_many(TOPIC, [OutgoingMessage({"n": n}, key=f"k{n % 7}") for n in range(1200)])
    assert remove(TOPIC, group=GROUP, filter=lambda m: m.payload["n"] % 2 == 0, limit=550) == 550
    assert remove(TOPIC, group=GROUP, filter=lambda m: m.payload["n"] % 2 == 0) == 50
    assert remove(TOPIC, group=GROUP, payload__n={1, 3}) == 2
    with Subscription(TOPIC, GROUP, batch_size=1000) as subscription:
        got = consume(subscription, 598)
        assert all(delivery.payload["n"] % 2 for delivery in got)
        settle_and_collect(subscription)
    assert in_log(TOPIC) == with_state(TOPIC, GROUP) == []


def test_removed_messages_say_so_and_go_with_the_watermark() -> None:
    offsets = published(1, 2, 3)
    subscribe(TOPIC, GROUP)
    remove(TOPIC, group=GROUP, status="pending")
    (first, *_) = messages(TOPIC, group=GROUP)
    assert [e.error for e in first.errors] == ["removed by hand"]
    assert first.done_at is not None
    with Subscription(TOPIC, GROUP) as subscription:
        assert consume_rest(subscription) == []
        settle_and_collect(subscription)
        assert watermark(TOPIC, GROUP, "k") >= offsets[-1]
    assert in_log(TOPIC) == with_state(TOPIC, GROUP) == []


def test_a_running_worker_finds_out_and_its_watermark_moves() -> None:
    """The worker already knows the messages, undelivered and waiting. One of them would wait for minutes."""
    with Subscription(TOPIC, GROUP, batch_size=1) as subscription:
        offsets = published(*range(5))
        (first,) = poll_until(subscription, 1)
        first.nack(delay=200, error="later")
        (second,) = poll_until(subscription, 1)
        assert remove(TOPIC, group=GROUP) == 4
        second.ack()
        wait_until(
            lambda: (subscription.poll(), settle(subscription), watermark(TOPIC, GROUP, "k") >= offsets[-1])[
                -1
            ],
            "the watermark moves",
        )
        assert consume_rest(subscription) == []
    assert DeliveryState.objects.filter(acked=True).count() == 5


def test_one_that_waits_keeps_its_errors() -> None:
    published(1)
    with Subscription(TOPIC, GROUP, name="w") as subscription:
        poll_until(subscription, 1)[0].nack(delay=60, error="no")
    remove(TOPIC, group=GROUP)
    (message,) = messages(TOPIC, group=GROUP)
    assert [(e.attempt, e.by, e.error) for e in message.errors] == [
        (1, "w", "no"),
        (0, "", "removed by hand"),
    ]
    assert (message.status, message.attempts, message.failures) == ("done", 1, 1)


def test_one_that_came_back_from_a_long_wait_keeps_its_newest_errors() -> None:
    """The note is the last of ten errors."""
    subscribe(TOPIC, GROUP)
    (offset,) = published("again", group=GROUP)
    errors = [{"at": n, "attempt": n, "by": "w", "error": f"no {n}"} for n in range(1, 11)]
    retry = {"id": "mine", "count": 10, "failures": 10, "errors": errors}
    row = Message.objects.get(offset=offset)
    Message.objects.filter(offset=offset).update(
        metadata={**row.metadata, "retry": retry}, original_id="mine"
    )
    assert remove(TOPIC, group=GROUP, id="mine") == 1
    (message,) = messages(TOPIC, group=GROUP)
    assert [e.error for e in message.errors] == [*(f"no {n}" for n in range(2, 11)), "removed by hand"]
    assert (message.outcome, message.attempts, message.failures) == ("removed", 10, 10)


@pytest.mark.parametrize("verb", [remove, send_to_front])
def test_groups_that_read_the_log_have_nothing_to_remove(verb: Callable[..., int]) -> None:
    subscribe(TOPIC, GROUP)
    following.follow(TOPIC, "archive", 0, 0, using="default")
    published(1)
    for group, count in (("archive", 0), (None, 1)):
        assert verb(TOPIC, group=group, dry_run=True) == count
        assert verb(TOPIC, group=group) == count
    assert not DeliveryState.objects.filter(consumer_group="archive").exists()
    assert not PartitionLease.objects.filter(consumer_group="archive").exists()


def test_a_limit_counts_only_messages_that_were_removed() -> None:
    """The first messages are locked: the next ones are removed instead."""
    offsets = published(*range(10))
    subscribe(TOPIC, GROUP)
    locked = Message.objects.filter(offset__in=offsets[:3]).select_for_update()
    with HeldTransaction(lambda: list(locked)):
        assert remove(TOPIC, group=GROUP, limit=4) == 4
    pending = messages(TOPIC, group=GROUP, status="pending", newest_first=False)
    assert [message.payload for message in pending] == [0, 1, 2, 7, 8, 9]


def test_a_late_answer_to_what_was_removed_is_stale() -> None:
    published(1)
    with Subscription(TOPIC, GROUP) as subscription:
        (delivery,) = poll_until(subscription, 1)
        DeliveryState.objects.update(
            in_flight=False, invisible_until=1
        )  # This is the state after a nack that the subscription does not know of.
        assert remove(TOPIC, group=GROUP) == 1
        with pytest.raises(StaleDelivery):
            delivery.nack()
        with pytest.raises(StaleDelivery):
            delivery.ack()


def test_dead_letters_that_a_group_consumes() -> None:
    """Messages of a dead-letter topic are removed as in any topic. Purging them also deletes their delivery state."""
    subscribe(f"{TOPIC}_dlq", "clerk")
    published(1, 2)
    with Subscription(TOPIC, GROUP) as subscription:
        for delivery in poll_until(subscription, 2):
            delivery.reject("no")
    assert remove(f"{TOPIC}_dlq", group="clerk", limit=1) == 1
    assert len(with_state(f"{TOPIC}_dlq", "clerk")) == 1
    assert remove(TOPIC, group=None, status="dead") == 2
    assert with_state(f"{TOPIC}_dlq", "clerk") == in_log(f"{TOPIC}_dlq") == []


def test_other_groups_and_other_topics_do_not_notice() -> None:
    subscribe(TOPIC, GROUP)
    subscribe("parcels", GROUP)
    publish("parcels", 1)
    published(1)
    with Subscription(TOPIC, "stock") as stock:
        assert remove(TOPIC, group=GROUP) == 1
        assert [d.payload for d in consume(stock, 1)] == [1]
    assert len(messages("parcels", group=GROUP, status="pending")) == 1


def test_a_reset_gives_them_back() -> None:
    published(1, 2)
    subscribe(TOPIC, GROUP)
    remove(TOPIC, group=GROUP)
    reset(TOPIC, GROUP, "earliest")
    with Subscription(TOPIC, GROUP) as subscription:
        assert [d.payload for d in consume(subscription, 2)] == [1, 2]


def test_a_dry_run_changes_nothing() -> None:
    one_of_each()
    with statements() as seen:
        remove(TOPIC, group=None, dry_run=True)
    assert not [sql for sql in seen if not sql.startswith(("SELECT", "(SELECT", "((SELECT", "EXPLAIN"))]


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        ({"group": "nobody"}, NotRegistered, "nobody"),
        (
            {"group": GROUP, "status": "in_flight"},
            ValueError,
            "one of waiting, pending, scheduled, dead",
        ),
        ({"group": GROUP, "status": "done"}, ValueError, "status must be"),
        ({"group": GROUP, "limit": 0}, ValueError, "limit"),
        ({"group": GROUP, "colour": 1}, TypeError, "payload__"),
    ],
)
def test_what_cannot_be_asked_is_refused(asked: dict[str, Any], error: type[Exception], text: str) -> None:
    subscribe(TOPIC, GROUP)
    published(1)
    with pytest.raises(error, match=text):
        remove(TOPIC, **asked)
    assert Message.objects.filter(topic=TOPIC).count() == 1


def test_it_is_part_of_the_callers_transaction() -> None:
    published(1)
    subscribe(TOPIC, GROUP)
    with rolled_back():
        assert remove(TOPIC, group=GROUP) == 1
    assert [m.status for m in messages(TOPIC, group=GROUP)] == ["pending"]


def test_what_is_remembered_is_not_delivered() -> None:
    """The worker knows the messages as undelivered, and has not read its group's registration since."""
    with (
        override_settings(MQUEUE={**QUICK, "DISCOVERY_INTERVAL": 600}),
        Subscription(TOPIC, GROUP) as subscription,
    ):
        published(*range(3))
        engine = engine_of(subscription)
        engine.tick()
        engine.tailer.tick()
        engine.tick()
        assert remove(TOPIC, group=GROUP, filter=lambda m: m.payload != 1) == 2
        assert [d.payload for d in consume(subscription, 1)] == [1]
        assert consume_rest(subscription) == []
