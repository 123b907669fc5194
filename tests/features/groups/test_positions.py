"""``reset`` moves a group's position. ``pause`` stops its deliveries, and ``resume`` starts them again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings

from django_mqueue import (
    FencedSubscription,
    GroupActive,
    NotRegistered,
    StaleDelivery,
    Subscription,
    inspect,
    pause,
    publish,
    publish_many,
    reset,
    resume,
    subscribe,
)
from django_mqueue.models import DeliveryState, Message, Offset
from django_mqueue.spark.database import following
from tests.support.fixtures import with_settings
from tests.support.subscribers import (
    QUICK,
    collect,
    consume,
    consume_rest,
    engine_of,
    in_log,
    poll_until,
    settle,
    settle_and_collect,
)
from tests.support.threads import Background
from tests.support.transactions import PATIENCE, HeldTransaction, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"
KEPT = {**QUICK, "RETENTION": 3600}


kept = with_settings(MQUEUE=KEPT)


@pytest.fixture
def done() -> list[int]:
    """Publish and consume ten messages of five keys. Return their offsets."""
    offsets = [publish(TOPIC, n, key=f"k{n % 5}").offset for n in range(10)]
    assert replayed() == list(range(10))
    return offsets


def replayed() -> list[int]:
    """Consume what the group receives from now on, and return its payloads. Each message must be a first attempt."""
    got: list[int] = []
    with Subscription(TOPIC, GROUP) as subscription:
        settle(subscription)
        for delivery in consume_rest(subscription):
            assert delivery.attempt == 1
            got.append(delivery.payload)
        settle(subscription)
    return sorted(got)


def test_to_the_earliest(done: list[int]) -> None:
    assert reset(TOPIC, GROUP, "earliest") == 0
    assert replayed() == list(range(10))
    assert replayed() == []


def test_to_an_offset(done: list[int]) -> None:
    assert reset(TOPIC, GROUP, done[6]) == done[6] - 1
    assert replayed() == [6, 7, 8, 9]


def test_to_a_time(done: list[int]) -> None:
    Message.objects.filter(offset__lt=done[7]).update(published_at=1_000_000_000_000)
    reset(TOPIC, GROUP, datetime(2020, 1, 1, tzinfo=UTC))
    assert replayed() == [7, 8, 9]


def test_to_the_latest_skips_what_is_there() -> None:
    subscribe(TOPIC, GROUP)
    publish_many(TOPIC, range(5))
    reset(TOPIC, GROUP, "latest")
    publish(TOPIC, 5)
    assert replayed() == [5]


def test_forward_and_back(done: list[int]) -> None:
    """The new position is never above the settled offset, so nothing that commits late is skipped."""
    assert reset(TOPIC, GROUP, done[9] + 1000) <= done[9]
    publish(TOPIC, 10)
    assert replayed() == [10]
    reset(TOPIC, GROUP, done[4])
    assert replayed() == [4, 5, 6, 7, 8, 9, 10]


def test_attempts_begin_anew_and_dead_letters_stay(done: list[int]) -> None:
    publish(TOPIC, 10, key="k")
    with Subscription(TOPIC, GROUP, max_attempts=2) as subscription:
        for _ in range(2):
            poll_until(subscription, 1)[0].nack()
    assert len(in_log(f"{TOPIC}_dlq")) == 1
    reset(TOPIC, GROUP, "earliest")
    assert replayed() == list(range(11))
    assert len(in_log(f"{TOPIC}_dlq")) == 1


def test_other_groups_do_not_notice(done: list[int]) -> None:
    subscribe(TOPIC, "stock")
    with Subscription(TOPIC, "stock") as stock:
        consume(stock, 10)
        settle(stock)
        before = list(DeliveryState.objects.filter(consumer_group="stock").values())
        marks = list(Offset.objects.filter(consumer_group="stock").values("partition_key", "offset_acked"))
        reset(TOPIC, GROUP, "earliest")
        assert consume_rest(stock) == []
    assert list(DeliveryState.objects.filter(consumer_group="stock").values()) == before
    assert (
        list(Offset.objects.filter(consumer_group="stock").values("partition_key", "offset_acked")) == marks
    )


def test_refused_while_its_subscribers_run_and_nothing_is_changed(done: list[int]) -> None:
    with Subscription(TOPIC, GROUP, name="one") as subscription:
        subscription.poll()
        with pytest.raises(
            GroupActive, match=r"has running subscribers: one\. Stop them, or give force=True"
        ) as error:
            reset(TOPIC, GROUP, "earliest")
        assert error.value.subscribers == ["one"]
        assert consume_rest(subscription) == []
    reset(TOPIC, GROUP, "earliest")


@pytest.mark.usefixtures("repeatable_read")
def test_refused_if_a_subscriber_has_started_since_the_snapshot(done: list[int]) -> None:
    started, ended = threading.Event(), threading.Event()

    def run() -> None:
        with Subscription(TOPIC, GROUP) as subscription:
            subscription.poll()
            started.set()
            assert ended.wait(PATIENCE)

    with transaction.atomic():
        assert Message.objects.exists()
        with Background(run):
            assert started.wait(PATIENCE)
            with pytest.raises(GroupActive):
                reset(TOPIC, GROUP, "earliest")
            ended.set()


def test_forced_its_subscribers_begin_anew(done: list[int]) -> None:
    """A forced reset includes messages in flight.

    Their acks are refused, and they are delivered again as first attempts.
    """
    publish(TOPIC, 10, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        (held,) = poll_until(subscription, 1)
        reset(TOPIC, GROUP, "earliest", force=True)
        with pytest.raises(StaleDelivery):
            held.ack()
        again = poll_until(subscription, 11)
        assert sorted((d.payload, d.attempt) for d in again) == [(n, 1) for n in range(11)]
        subscription.ack(again)
        settle(subscription)
    assert DeliveryState.objects.filter(acked=True).count() == 11


def test_forced_the_younger_of_one_name_stays(done: list[int]) -> None:
    """An older subscriber that does not know its successor yet does not replace it."""
    with Subscription(TOPIC, GROUP, name="one") as older:
        older.poll()
        with Subscription(TOPIC, GROUP, name="one") as younger:
            younger.poll()
            reset(TOPIC, GROUP, "earliest", force=True)
            with pytest.raises(FencedSubscription):
                consume_rest(older)
            assert len(consume(younger, 10)) == 10


def test_nothing_that_is_to_come_again_is_deleted_meanwhile(done: list[int]) -> None:
    """The messages are past retention. One collection runs before the reset commits, and another one after it."""
    from tests.protocol.interleavings.steps import COMMIT, Stopped

    with override_settings(MQUEUE={**KEPT, "RETENTION": 0, "GC_INTERVAL": 3600}):
        with Stopped(lambda: reset(TOPIC, GROUP, "earliest"), COMMIT) as moving:
            side = Background(lambda: collect(TOPIC)).start()
            side.result()
            moving.go()
        collect(TOPIC)
        assert len(in_log(TOPIC)) == 10
        assert replayed() == list(range(10))
        with Subscription(TOPIC, GROUP) as subscription:
            settle_and_collect(subscription)
    assert in_log(TOPIC) == []


def test_what_is_deleted_does_not_come_back() -> None:
    publish_many(TOPIC, range(5))
    replayed()
    with override_settings(MQUEUE=QUICK), Subscription(TOPIC, GROUP) as subscription:
        settle_and_collect(subscription)
    publish(TOPIC, 5)
    reset(TOPIC, GROUP, "earliest")
    assert replayed() == [5]


@pytest.mark.parametrize(
    "verb",
    [
        lambda: reset(TOPIC, "nobody", "earliest"),
        lambda: pause(TOPIC, "nobody"),
        lambda: resume(TOPIC, "nobody"),
    ],
)
def test_a_group_that_is_not_registered(verb: Callable[[], int]) -> None:
    with pytest.raises(NotRegistered, match="'nobody' is not registered"):
        verb()


@pytest.mark.parametrize(
    ("to", "error"),
    [("begin", TypeError), (-1, ValueError), (datetime(2026, 1, 1), ValueError), (None, TypeError)],
)
def test_bad_places(to: Any, error: type[Exception], django_assert_num_queries: Callable[[int], Any]) -> None:
    with django_assert_num_queries(0), pytest.raises(error, match="start must be"):
        reset(TOPIC, GROUP, to)


@pytest.mark.parametrize("alone", [True, False])
def test_a_paused_group_is_given_nothing_and_others_are(alone: bool) -> None:
    """Pause one group, or all groups of a topic.

    The pause applies to running subscribers and to those started later.
    """
    for group in (GROUP, "stock"):
        subscribe(TOPIC, group)
    publish(TOPIC, 0)
    with Subscription(TOPIC, GROUP) as running:
        consume(running, 1)
        assert pause(TOPIC, GROUP if alone else None) == (1 if alone else 2)
        assert pause(TOPIC, GROUP if alone else None) == 0
        publish(TOPIC, 1)
        assert consume_rest(running) == []
        with Subscription(TOPIC, GROUP) as late, Subscription(TOPIC, "stock") as stock:
            assert consume_rest(late) == []
            assert [d.payload for d in consume_rest(stock)] == ([0, 1] if alone else [])
        assert resume(TOPIC, GROUP) == 1
        assert [d.payload for d in consume(running, 1)] == [1]
    assert resume(TOPIC) == (0 if alone else 1)


def test_who_reads_the_log_by_itself_is_not_paused() -> None:
    """A group that reads the log itself has no deliveries that ``pause`` could stop."""
    subscribe(TOPIC, GROUP)
    following.follow(TOPIC, "archive", 0, 0, using="default")
    assert pause(TOPIC, "archive") == 0
    assert pause(TOPIC) == 1
    assert {one.group for one in inspect.groups(TOPIC) if one.paused} == {GROUP}
    assert resume(TOPIC) == 1


def test_what_a_handler_has_may_be_answered_during_a_pause() -> None:
    publish_many(TOPIC, range(2))
    with Subscription(TOPIC, GROUP) as subscription:
        first, second = poll_until(subscription, 2)
        pause(TOPIC, GROUP)
        assert first.ack()
        assert second.nack()
        assert consume_rest(subscription) == []
        resume(TOPIC, GROUP)
        assert [(d.payload, d.attempt) for d in consume(subscription, 1)] == [(second.payload, 2)]


def test_nothing_is_deleted_that_a_paused_group_has_not_done() -> None:
    subscribe(TOPIC, GROUP)
    pause(TOPIC, GROUP)
    publish(TOPIC, 0)
    with override_settings(MQUEUE=QUICK), Subscription(TOPIC, "stock") as stock:
        consume(stock, 1)
        settle_and_collect(stock)
        assert len(in_log(TOPIC)) == 1


def test_a_reset_keeps_the_pause(done: list[int]) -> None:
    pause(TOPIC, GROUP)
    reset(TOPIC, GROUP, "earliest")
    assert replayed() == []
    resume(TOPIC, GROUP)
    assert replayed() == list(range(10))


def test_a_reset_keeps_a_pause_that_the_snapshot_of_the_caller_hides(done: list[int]) -> None:
    def work() -> None:
        connection.isolation_level = "repeatable read"  # type: ignore[attr-defined]
        Offset.objects.count()
        with Background(lambda: pause(TOPIC, GROUP)) as other:
            other.result()
        reset(TOPIC, GROUP, "earliest")

    with HeldTransaction(work, isolation="repeatable read") as held:
        held.commit()
    assert Offset.objects.get(consumer_group=GROUP, topic=TOPIC, partition_key="").paused


def test_no_claim_is_under_way_when_pause_returns() -> None:
    """``pause`` waits for a claim that is under way. Any later claim gets nothing."""
    from tests.protocol.interleavings.steps import COMMIT, Stopped
    from tests.protocol.interleavings.workers import claim

    with override_settings(
        MQUEUE={**KEPT, "DISCOVERY_INTERVAL": 3600, "LEASE_RENEWAL_INTERVAL": 300, "LEASE_DURATION": 600}
    ):
        for key in "ab":  # Two partitions: of one partition, the second message waits for the first.
            publish(TOPIC, key, key=key)
        with Subscription(TOPIC, GROUP, batch_size=1) as subscription:
            engine_of(subscription).tick()
            with Stopped(lambda: claim(subscription, 1), COMMIT) as claiming:
                pausing = Background(lambda: pause(TOPIC, GROUP)).start()
                assert pausing.is_blocked
                (one,) = claiming.go()
                assert pausing.result() == 1
            assert claim(subscription, 1) == []
            assert one.ack()
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 1, "it is done")


def test_pausing_a_topic_waits_for_no_other_topic() -> None:
    """A worker of another topic stops in the middle of moving its watermark."""
    from tests.protocol.interleavings.steps import COMMIT, Stopped

    subscribe(TOPIC, GROUP)
    publish("parcels", 0, key="k")
    with Subscription("parcels", "depot") as depot:
        consume(depot, 1)
        settle(depot)
        publish("parcels", 1, key="k")
        consume(depot, 1)
        engine_of(depot).tailer.settle("parcels")
        with Stopped(lambda: engine_of(depot).watermarks.tick(force=True), COMMIT) as moving:
            assert Background(lambda: pause(TOPIC)).start().result() == 1
            assert Background(lambda: resume(TOPIC)).start().result() == 1
            moving.go()
