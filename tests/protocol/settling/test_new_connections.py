"""A worker reads everything again for each new connection. Other events happen meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connection, connections
from django.test import override_settings

from django_mqueue import Delivery, OutgoingMessage, Subscription, publish, publish_many, purge, subscribe
from django_mqueue.models import PartitionLease, SubscriberHeartbeat
from django_mqueue.policy import quarantine
from django_mqueue.protocol import tailer as feed_module
from django_mqueue.protocol.delivery import Options
from django_mqueue.protocol.settling import Settler
from django_mqueue.protocol.subscriber import Subscriber
from django_mqueue.protocol.tailer import Tailer
from tests.support.subscribers import (
    CALM,
    QUICK,
    consume,
    engine_of,
    in_log,
    make_due,
    make_idle,
    poll_until,
    settle,
    settle_and_collect,
)
from tests.support.threads import Background, RawConnection, raw_connection
from tests.support.transactions import HeldTransaction, wait, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"


@dataclass
class Witness:
    """A second listener of a topic. It is called after the topic's subscriber."""

    seen: Callable[[], object] = lambda: None
    strict: bool = False
    times: int = 0
    heard: set[int] = field(default_factory=set)

    def arrived(self, rows: Sequence[tuple[int, str, str]]) -> None:
        self.heard.update(offset for offset, _, _ in rows)

    def reload(self, position: int) -> None:
        self.times += 1
        self.seen()

    def send_heartbeat_if_due(self) -> None:
        pass


@override_settings(MQUEUE=CALM)
def test_what_commits_while_all_is_read_anew_comes_before_what_is_sent_then() -> None:
    """In strict order, a late message comes before a message that is published after it.

    Another worker has settled the late message before this worker continues.
    """
    with Subscription(TOPIC, GROUP, strict=True) as subscription:
        publish(TOPIC, 0, key="k")
        consume(subscription, 1)
        settle(subscription)
        with HeldTransaction(lambda: publish(TOPIC, 1, key="k")) as late:
            newest = publish(TOPIC, "another", key="other").offset
            consume(subscription, 1)

            def go_on() -> None:
                late.commit()
                settler = Settler("default", TOPIC)
                wait_until(lambda: settler.advance() >= newest, "it is settled")
                publish(TOPIC, 2, key="k")

            witness = Witness(go_on)
            engine_of(subscription).tailer.join(TOPIC, witness)
            connection.close()
            assert [delivery.payload for delivery in consume(subscription, 2)] == [1, 2]
            assert witness.times == 1


@override_settings(MQUEUE=QUICK)
def test_what_a_handler_has_in_hand_is_its_own_though_it_is_told_as_news_again() -> None:
    """An open publisher prevents settling, so a message in flight is read again as new. Its delivery still counts.

    The worker keeps the partition until the message is acked.
    """
    with (
        HeldTransaction(lambda: publish(TOPIC, "open", key="other")),
        Subscription(TOPIC, GROUP, "z") as mine,
    ):
        publish(TOPIC, 1, key="k")
        (left,) = poll_until(mine, 1)
        told = Witness()
        connection.close()
        engine_of(mine).tailer.join(TOPIC, told)
        wait_until(lambda: mine.poll() or left.offset in told.heard, "it is told again")
        assert [mine.poll() for _ in range(3)] == [[], [], []]
        with Subscription(TOPIC, GROUP, "a") as other:
            partitions = engine_of(mine).state.partitions

            def shared() -> bool:
                assert [*mine.poll(), *other.poll()] == []
                return any(partition.leaving for partition in partitions.values())

            wait_until(shared, "the other one has a share")
            for _ in range(20):
                make_due(mine)
                make_due(other)
                assert [*mine.poll(), *other.poll()] == []
            assert left.ack()
            publish(TOPIC, 2, key="k")
            got: list[Delivery] = []

            def goes_on() -> bool:
                got.extend([*mine.poll(), *other.poll()])
                return bool(got)

            wait_until(goes_on, "the next one is delivered")
            assert [delivery.payload for delivery in got] == [2]


@override_settings(MQUEUE=CALM)
def test_a_drained_partition_is_given_up_by_who_has_many_connections() -> None:
    """The worker reads an idle partition again for each connection.

    This does not count as work on it, so it is given up.
    """
    with Subscription(TOPIC, GROUP) as subscription, patch.object(feed_module, "MIN_RELOAD_INTERVAL", 0):
        publish(TOPIC, 0, key="k")
        consume(subscription, 1)
        witness, engine = Witness(), engine_of(subscription)
        engine.tailer.join(TOPIC, witness)

        def is_given_up() -> bool:
            make_idle(subscription)
            connection.close()
            assert subscription.poll() == []
            with engine.state.lock:
                engine.watermarks.tick(force=True)  # The poll has read the partition after its own tick.
            engine.find_work()
            return not PartitionLease.objects.exists()

        wait_until(is_given_up, "nobody leases it")
        assert witness.times


@override_settings(MQUEUE=CALM)
def test_threads_that_poll_in_turn_have_nothing_read_anew() -> None:
    """Each thread uses a connection that is new only once."""
    with (
        Subscription(TOPIC, GROUP) as subscription,
        patch.object(feed_module, "MIN_RELOAD_INTERVAL", 0),
        ThreadPoolExecutor(1) as another,
    ):
        witness = Witness()
        engine_of(subscription).tailer.join(TOPIC, witness)
        try:
            for _ in range(3):
                subscription.poll()
                another.submit(subscription.poll).result()
        finally:
            another.submit(connections.close_all).result()
        assert witness.times == 1


@override_settings(MQUEUE=CALM)
def test_what_is_left_unanswered_by_hand_is_not_told_of_each_time(caplog: pytest.LogCaptureFixture) -> None:
    with (
        patch.object(quarantine, "RUN_TOGETHER_AFTER", 3600),
        Subscription(TOPIC, GROUP, visibility_timeout=0.05) as subscription,
        patch.object(feed_module, "MIN_RELOAD_INTERVAL", 0),
    ):
        publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(2)])
        left, kept = poll_until(subscription, 2)
        kept.extend(600)
        wait_until(
            lambda: subscription.poll() == [] and engine_of(subscription).has_quarantined, "time is up"
        )
        for _ in range(3):
            connection.close()
            assert subscription.poll() == []
            assert engine_of(subscription).has_quarantined
        assert not [record for record in caplog.records if "left unanswered" in record.getMessage()]
        assert left.ack()


@override_settings(MQUEUE=CALM)
def test_what_others_settle_and_delete_meanwhile_was_not_lost() -> None:
    """This worker stops after it reads the log, and before it reads the settled offset.

    Others settle and delete messages in between. The worker does not report lost messages.
    """
    with Subscription(TOPIC, GROUP) as subscription:
        publish(TOPIC, 0, key="k")
        consume(subscription, 1)
        settle(subscription)
        settler = Settler("default", TOPIC)
        settler.advance()
        seen = publish(TOPIC, 1, key="k").offset
        consume(subscription, 1)

        def stand_still(execute: Callable[..., Any], *statement: Any) -> Any:
            result = execute(*statement)
            if not others:
                others.append(Background(lambda: settle_and_collect(subscription)).start().result())
            return result

        others: list[int] = []
        with connection.execute_wrapper(stand_still):
            settler.advance(seen)
        assert others == [seen]
        assert in_log(TOPIC) == []
        assert not settler.was_restored
        assert not settler.is_truncated


@override_settings(MQUEUE=CALM)
def test_dead_letters_that_are_taken_out_are_nothing_lost(caplog: pytest.LogCaptureFixture) -> None:
    """The newest dead letter was read, but was not settled yet."""
    letters = f"{TOPIC}_dlq"
    with Subscription(TOPIC, GROUP) as subscription, Subscription(letters, "clerk") as clerk:
        witness = Witness()
        engine_of(clerk).tailer.join(letters, witness)
        tail = engine_of(clerk).tailer.tails[letters]
        for n in range(3):
            tail.settle_at = math.inf
            publish(TOPIC, n, key="k")
            for delivery in poll_until(subscription, 1):
                assert delivery.reject("no")
            consume(clerk, 1)
            assert purge(TOPIC) == 1
            tail.settle_at = -math.inf
            clerk.poll()
            clerk.poll()
        assert witness.times == 1
    assert not [record for record in caplog.records if "set back" in record.getMessage()]


@override_settings(MQUEUE={**CALM, "LEASE_RENEWAL_INTERVAL": 0.01})
def test_reading_anew_outlasts_no_lease() -> None:
    """A process with two groups reads everything again after an outage, in parts.

    Between two parts, as much time passes as a lease lasts. Before each part, both groups renew their leases and send
    heartbeats.
    """
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n}") for n in range(450)])
    feed = Tailer("default")
    for group in ("one", "two"):
        subscribe(TOPIC, group)
    engines = [
        Subscriber(TOPIC, group, "me", Options("default"), feed, polled_by_caller=False)
        for group in ("one", "two")
    ]
    for engine in engines:
        engine.start()
        engine.tick()
        assert len(engine.state.partitions) == 450
    alive: list[bool] = []
    with raw_connection() as other:
        time_passes(other)

        def look(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
            if sql.startswith("SELECT partition_key, offset_acked, scan_offset"):
                leased = PartitionLease.objects.filter(lease_renewed_at=LONG_AGO).exists()
                beaten = SubscriberHeartbeat.objects.filter(heartbeat_at=LONG_AGO).exists()
                alive.append(not (leased or beaten))
                time_passes(other)
            return execute(sql, params, many, context)

        connection.close()
        with connection.execute_wrapper(look):
            feed.tick()
    assert alive == [True] * 6
    for engine in engines:
        engine.stop()


LONG_AGO = 1


def time_passes(other: RawConnection) -> None:
    """Let so much time pass that leases and heartbeats expire."""
    other.execute("UPDATE queue_partition_leases SET lease_renewed_at = %s", [LONG_AGO])
    other.execute("UPDATE queue_subscriber_heartbeats SET heartbeat_at = %s", [LONG_AGO])
    other.commit()
    wait(0.02)  # The next renewal is due.
