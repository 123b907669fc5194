"""Garbage collection deletes what every group has acked, and not before its retention is over."""

from __future__ import annotations

import io
import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease
from django_mqueue.protocol.retention import garbage_collection
from tests.support.processes import database_ms
from tests.support.subscribers import (
    QUICK,
    collect,
    consume,
    in_log,
    make_idle,
    poll_until,
    settle,
    settle_and_collect,
    watermark,
    with_state,
)
from tests.support.transactions import PATIENCE, Background, HeldTransaction, statements, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"
HOUR = {**QUICK, "RETENTION": 3600}


def age(topic: str, by: timedelta) -> None:
    """Make all messages of a topic older, so that no test waits for an hour."""
    for message in Message.objects.filter(topic=topic):
        message.published_at -= by // timedelta(milliseconds=1)
        message.save(update_fields=["published_at"])


def deleted_by_gc() -> int:
    """Run the command, and return the number of messages that it deleted."""
    out = io.StringIO()
    call_command("mqueue", "gc", TOPIC, "--json", stdout=out)
    (row,) = json.loads(out.getvalue())["topics"]
    return int(row["deleted"])


@override_settings(MQUEUE=HOUR)
def test_what_is_done_is_kept_for_the_retention() -> None:
    """Retention is one hour from publication, by the database's clock.

    The delivery state is deleted together with its message.
    """
    with Subscription(TOPIC, group=GROUP) as subscription:
        first = publish(TOPIC, 1, key="k").offset
        consume(subscription, 1)
        settle_and_collect(subscription)
        assert in_log(TOPIC) == with_state(TOPIC, GROUP) == [first]
        age(TOPIC, timedelta(seconds=3500))
        settle_and_collect(subscription)
        assert in_log(TOPIC) == [first]
        age(TOPIC, timedelta(seconds=101))
        second = publish(TOPIC, 2, key="k").offset
        consume(subscription, 1)
        settle_and_collect(subscription)
        assert in_log(TOPIC) == with_state(TOPIC, GROUP) == [second]


@override_settings(MQUEUE={**HOUR, "TOPICS": {TOPIC: {"RETENTION": 0}}})
def test_a_topic_may_have_a_retention_of_its_own() -> None:
    for topic in (TOPIC, "payments"):
        with Subscription(topic, group=GROUP) as subscription:
            publish(topic, 1, key="k")
            consume(subscription, 1)
            settle_and_collect(subscription)
    assert in_log(TOPIC) == []
    assert len(in_log("payments")) == 1


@override_settings(MQUEUE=QUICK)
def test_what_is_not_done_is_kept_however_old() -> None:
    """Age alone deletes no message that is undelivered, in flight, or waiting for a retry."""
    subscribe(TOPIC, GROUP)
    kept = [publish(TOPIC, n, key=f"key-{n}").offset for n in range(3)]
    age(TOPIC, timedelta(days=400))
    with Subscription(TOPIC, group=GROUP) as subscription:
        deliveries = {d.key: d for d in poll_until(subscription, 3)}
        deliveries["key-1"].nack(delay=60)
        deliveries["key-2"].postpone(60)
        settle_and_collect(subscription)
        assert in_log(TOPIC) == kept
        deliveries["key-0"].ack()
        settle_and_collect(subscription)
        assert in_log(TOPIC) == kept[1:]


@override_settings(MQUEUE=QUICK)
def test_an_open_message_holds_back_its_own_partition_only() -> None:
    """Later messages of its partition stay, with their state. Other partitions are collected."""
    with Subscription(TOPIC, group=GROUP, batch_size=1000) as subscription:
        publish(TOPIC, "stuck", key="stuck")
        (stuck,) = poll_until(subscription, 1)
        publish_many(TOPIC, [OutgoingMessage(n, key="stuck" if n % 2 else "flowing") for n in range(20)])
        consume(subscription, 20)
        settle_and_collect(subscription)
        assert len(in_log(TOPIC)) == 11
        assert len(with_state(TOPIC, GROUP)) == 11
        assert watermark(TOPIC, GROUP, "stuck") < stuck.offset <= watermark(TOPIC, GROUP, "flowing")
        stuck.ack()
        settle_and_collect(subscription)
    assert in_log(TOPIC) == with_state(TOPIC, GROUP) == []


@override_settings(MQUEUE=QUICK)
def test_a_worker_collects_by_itself_while_it_polls() -> None:
    """No call is needed, even under load. The worker also gives up the leases of emptied partitions."""
    with Subscription(TOPIC, group=GROUP) as subscription:
        for number in range(30):
            publish(TOPIC, number, key=f"key-{number % 5}")
            consume(subscription, 1)

        def all_gone() -> bool:
            subscription.poll()
            return not in_log(TOPIC) and not DeliveryState.objects.exists()

        def given_up() -> bool:
            make_idle(subscription)
            return not subscription.poll() and not PartitionLease.objects.exists()

        wait_until(all_gone, "the log is empty")
        wait_until(given_up, "leases are given up")


@override_settings(MQUEUE=QUICK)
def test_positions_of_emptied_partitions_go_with_the_last_message() -> None:
    """Positions of partitions without a lease are deleted, so a million old keys cost nothing."""
    with Subscription(TOPIC, group=GROUP) as subscription:
        publish_many(TOPIC, [OutgoingMessage(n, key=f"key-{n}") for n in range(50)])
        consume(subscription, 50)
        settle(subscription)
    PartitionLease.objects.all().delete()
    assert Offset.objects.filter(consumer_group=GROUP).exclude(partition_key="").count() == 50
    collect(TOPIC)
    assert in_log(TOPIC) == []
    assert not Offset.objects.filter(consumer_group=GROUP).exclude(partition_key="").exists()
    publish(TOPIC, "again", key="key-7")
    with Subscription(TOPIC, group=GROUP) as subscription:
        assert [d.payload for d in consume(subscription, 1)] == ["again"]


@override_settings(MQUEUE=QUICK)
def test_collection_goes_in_batches_each_committed() -> None:
    """One transaction deletes a thousand rows at most, and does not grow with the backlog."""
    count = 2500
    with Subscription(TOPIC, group=GROUP, batch_size=1000) as subscription:
        publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(count)])
        with override_settings(MQUEUE=HOUR):
            got = 0
            while got < count:
                deliveries = subscription.poll(1000)
                subscription.ack(deliveries)
                got += len(deliveries)
            wait_until(lambda: settle(subscription) and watermark(TOPIC, GROUP, "k"), "the watermark moves")
        collector = garbage_collection.Collector("default", TOPIC)
        left = []
        while True:
            with statements() as seen:
                more = collector.collect_page(0)
            assert len(seen) <= 12
            left.append(len(in_log(TOPIC)))
            if not more:
                break
    assert left[:3] == [1500, 500, 0]


@override_settings(MQUEUE=HOUR)
def test_rows_that_nobody_can_delete_yet_do_not_hide_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest rows fill many pages and cannot be deleted. The next pass continues behind them."""
    monkeypatch.setattr(garbage_collection, "PAGE", 10)
    monkeypatch.setattr(garbage_collection, "FRUITLESS_PAGES", 3)
    with Subscription(TOPIC, group=GROUP, batch_size=1) as subscription:
        publish_many(TOPIC, [OutgoingMessage("stuck", key="stuck")] * 100)
        (stuck,) = poll_until(subscription, 1)
        publish_many(TOPIC, [OutgoingMessage("flowing", key="flowing")] * 20)
        consume(subscription, 20)
        settle(subscription)
        age(TOPIC, timedelta(hours=2))
        collector = garbage_collection.Collector("default", TOPIC)
        for _ in range(10):
            while collector.collect_page(0):
                pass
        assert len(in_log(TOPIC)) == 100
        assert stuck.ack()


@override_settings(MQUEUE={**HOUR, "GC_INTERVAL": 3600})
def test_gc_begins_at_the_first_message_and_ends_at_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers' passes stop in the middle, and the next one continues there. The command does all of it."""
    monkeypatch.setattr(garbage_collection, "PAGE", 10)
    monkeypatch.setattr(garbage_collection, "FRUITLESS_PAGES", 3)
    with Subscription(TOPIC, group=GROUP, batch_size=1) as subscription:
        publish_many(TOPIC, [OutgoingMessage("stuck", key="stuck")] * 100)
        (stuck,) = poll_until(subscription, 1)
        publish_many(TOPIC, [OutgoingMessage("flowing", key="flowing")] * 20)
        consume(subscription, 20)
        settle(subscription)
        age(TOPIC, timedelta(hours=2))
        assert deleted_by_gc() == 20
        collect(TOPIC)
        assert stuck.ack()
        consume(subscription, 99)
        settle(subscription)
        assert deleted_by_gc() == 100


@override_settings(MQUEUE=HOUR)
def test_gc_ends_at_the_first_young_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing behind it can be deleted. Unfinished messages of a group would else all be read."""
    monkeypatch.setattr(garbage_collection, "PAGE", 10)
    with Subscription(TOPIC, group=GROUP, batch_size=1) as subscription:
        publish_many(TOPIC, [OutgoingMessage("stuck", key="stuck")] * 100)
        poll_until(subscription, 1)
        settle(subscription)
        with statements() as seen:
            assert deleted_by_gc() == 0
    assert sum(sql.endswith("LIMIT 10") for sql in seen) == 1


@override_settings(MQUEUE=HOUR)
def test_a_pass_that_ended_before_the_clock_was_set_back_delays_nothing() -> None:
    with Subscription(TOPIC, group=GROUP) as subscription:
        publish(TOPIC, 1)
        consume(subscription, 1)
        settle(subscription)
        age(TOPIC, timedelta(hours=2))
        tomorrow = database_ms() + 86_400_000
        Offset.objects.filter(topic=TOPIC, consumer_group="", partition_key="").update(updated_at=tomorrow)
        assert deleted_by_gc() == 1


@override_settings(MQUEUE=HOUR)
@pytest.mark.parametrize("pages", [0, 1])
def test_gc_waits_for_the_topic(pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another transaction locks the topic before the first or the second page."""
    monkeypatch.setattr(garbage_collection, "PAGE", 2)
    collected, locked = threading.Semaphore(pages), threading.Event()
    collect_page, reached = garbage_collection.Collector.collect_page, threading.Event()

    def paused(*arguments: Any, **options: Any) -> bool:
        if not collected.acquire(blocking=False):
            reached.set()
            assert locked.wait(PATIENCE)
        return collect_page(*arguments, **options)

    with Subscription(TOPIC, group=GROUP) as subscription:
        publish_many(TOPIC, range(3))
        consume(subscription, 3)
        settle(subscription)
    age(TOPIC, timedelta(hours=2))
    monkeypatch.setattr(garbage_collection.Collector, "collect_page", paused)
    with Background(deleted_by_gc) as gc:
        assert reached.wait(PATIENCE)
        with HeldTransaction(lambda: subscribe(TOPIC, "other")) as held:
            locked.set()
            assert gc.is_blocked
            held.rollback()
        assert gc.result() == 3


def test_gc_of_an_unknown_topic_leaves_it_unknown() -> None:
    for _ in range(2):
        with pytest.raises(CommandError, match="topic 'odrers' is unknown"):
            call_command("mqueue", "gc", "odrers", stdout=io.StringIO())


@override_settings(MQUEUE=QUICK)
def test_dead_letters_are_no_garbage() -> None:
    """They stay even after the groups that consume them have acked them."""
    with Subscription(TOPIC, group=GROUP) as subscription:
        publish(TOPIC, 1, key="k")
        poll_until(subscription, 1)[0].reject("no")
        settle_and_collect(subscription)
    with Subscription(f"{TOPIC}_dlq", group="watchers") as subscription:
        consume(subscription, 1)
        settle_and_collect(subscription)
    assert in_log(TOPIC) == []
    assert len(in_log(f"{TOPIC}_dlq")) == 1
