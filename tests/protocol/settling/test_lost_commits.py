"""A database loses its last commits while workers run, and gives the same offsets to other messages.

The causes are a failover to a server that was behind, and a power cut without flushed commits.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
from django.db import connection, connections
from django.test import override_settings

from django_mqueue import OutgoingMessage, StaleDelivery, Subscription, publish, publish_many
from django_mqueue.models import DeliveryState, Message
from django_mqueue.policy import quarantine
from django_mqueue.protocol.settling import Settler
from django_mqueue.store import offsets
from tests.support.processes import FAST, Workers
from tests.support.restore import Earlier
from tests.support.subscribers import (
    CALM,
    QUICK,
    collect,
    consume,
    consume_rest,
    engine_of,
    in_log,
    poll_until,
    settle,
    watermark,
)  # fmt: skip
from tests.support.threads import Background, RawConnection, kill_others, raw_connection
from tests.support.transactions import HeldTransaction, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"


def five(first: int, key: str = "k") -> list[OutgoingMessage]:
    return [OutgoingMessage(n, key=key) for n in range(first, first + 5)]


def payloads(deliveries: object) -> list[int]:
    return sorted(delivery.payload for delivery in deliveries)  # type: ignore[attr-defined]


@pytest.mark.parametrize("mqueue", [QUICK, CALM], ids=["quick", "calm"])
@pytest.mark.parametrize("strict", [False, True])
def test_what_is_published_after_a_set_back_is_delivered(mqueue: dict[str, float], strict: bool) -> None:
    """A delivery is open during the restore, and its ack is refused. With quick settings, deletion also runs."""
    with override_settings(MQUEUE=mqueue), Subscription(TOPIC, GROUP, strict=strict) as subscription:
        publish_many(TOPIC, five(0))
        assert payloads(consume(subscription, 5)) == [0, 1, 2, 3, 4]
        settle(subscription)
        earlier = Earlier()
        publish_many(TOPIC, five(5))
        consume(subscription, 5)
        publish(TOPIC, 10, key="k")
        (left,) = poll_until(subscription, 1)
        settle(subscription)
        assert watermark(TOPIC, GROUP, "k") == left.offset - 1
        earlier.set_back()
        publish_many(TOPIC, five(20))
        assert left.offset in range(earlier.newest + 1, in_log(TOPIC)[-1] + 2)
        with pytest.raises(StaleDelivery):
            left.ack()
        assert payloads(consume(subscription, 5)) == [20, 21, 22, 23, 24]
        assert consume_rest(subscription) == []


@override_settings(MQUEUE=CALM)
def test_a_watermark_that_is_remembered_is_not_written_over_an_earlier_one() -> None:
    """No worker polls between the restore and the watermark, so memory still has the old state."""
    with Subscription(TOPIC, GROUP) as subscription:
        publish_many(TOPIC, five(0))
        consume(subscription, 5)
        settle(subscription)
        earlier = Earlier()
        publish_many(TOPIC, five(5))
        consume(subscription, 5)
        settle(subscription)
        engine = engine_of(subscription)
        earlier.set_back()
        publish_many(TOPIC, five(20))
        settler = Settler("default", TOPIC)  # Another worker that has already settled this.
        wait_until(lambda: settler.advance() >= in_log(TOPIC)[-1], "it is settled")
        engine.state.mark_dirty("k")
        settle(subscription)
        assert watermark(TOPIC, GROUP, "k") == earlier.newest
        collect(TOPIC)
        assert payloads(consume(subscription, 5)) == [20, 21, 22, 23, 24]


@override_settings(MQUEUE=CALM)
def test_a_watermark_goes_by_what_is_settled_now() -> None:
    """The watermark follows the settled offset after the restore, which is lower than before.

    A publisher's transaction is open below the old settled offset.
    """
    with Subscription(TOPIC, GROUP) as subscription:
        publish_many(TOPIC, five(0))
        consume(subscription, 5)
        settle(subscription)
        earlier = Earlier()
        publish_many(TOPIC, five(5, key="another"))
        consume(subscription, 5)
        settle(subscription)
        earlier.set_back()
        with HeldTransaction(lambda: publish(TOPIC, 20, key="k")) as late:
            engine = engine_of(subscription)
            engine.state.mark_dirty("k")
            engine.watermarks.tick(force=True)
            late.commit()
        assert watermark(TOPIC, GROUP, "k") == earlier.newest
        connection.close()
        assert payloads(consume(subscription, 1)) == [20]


@override_settings(MQUEUE=QUICK)
def test_an_idle_worker_hears_of_it_by_its_topic_s_row() -> None:
    with Subscription(TOPIC, GROUP) as subscription:
        publish_many(TOPIC, five(0))
        consume(subscription, 5)
        settle(subscription)
        earlier = Earlier()
        publish_many(TOPIC, five(5))
        consume(subscription, 5)
        settle(subscription)
        assert not engine_of(subscription).state.dirty
        earlier.set_back()
        publish_many(TOPIC, five(20))
        assert payloads(consume(subscription, 5)) == [20, 21, 22, 23, 24]


@override_settings(MQUEUE=CALM)
def test_a_log_that_ends_before_what_was_read_is_read_anew() -> None:
    """The settled offset has not moved for long, because an open transaction held it back.

    The restore does not change it.
    """
    with Subscription(TOPIC, GROUP) as subscription:
        publish_many(TOPIC, five(0))
        consume(subscription, 5)
        settle(subscription)
        earlier = Earlier()
        with HeldTransaction(lambda: publish(TOPIC, 5, key="k")):
            publish_many(TOPIC, five(6))
            consume(subscription, 5)
            settle(subscription)
        assert offsets.settled("default", TOPIC) == earlier.newest
        earlier.set_back()
        publish(TOPIC, 20, key="new")
        assert payloads(consume(subscription, 1)) == [20]


@override_settings(MQUEUE=CALM)
def test_what_others_have_settled_meanwhile_is_found_by_a_new_connection() -> None:
    """The topic's stored settled offset is above this worker's memory.

    None of the worker's own partitions has changed.
    """
    with Subscription(TOPIC, GROUP) as subscription:
        publish(TOPIC, 0, key="k")
        consume(subscription, 1)
        settle(subscription)
        earlier = Earlier()
        publish_many(TOPIC, five(5, key="another"))
        consume(subscription, 5)
        settle(subscription)
        connection.close()
        earlier.set_back()
        publish_many(TOPIC, five(20))
        with Subscription(TOPIC, "another") as other:
            publish(TOPIC, 25, key="last")
            consume(other, 7)
            assert settle(other) == in_log(TOPIC)[-1]
        connection.close()
        assert payloads(consume(subscription, 6)) == [20, 21, 22, 23, 24, 25]


@override_settings(MQUEUE=CALM)
def test_each_connection_that_is_lost_has_all_read_anew() -> None:
    """This also holds soon after another loss, as in a failover. Strict order cannot use what was read before."""
    with Subscription(TOPIC, GROUP, strict=True) as subscription:
        publish_many(TOPIC, five(0))
        consume(subscription, 5)
        settle(subscription)
        earlier = Earlier()
        with HeldTransaction(lambda: publish(TOPIC, "held up", key="settling")):
            publish_many(TOPIC, five(5))
            consume(subscription, 5)
            settle(subscription)
        connection.close()
        subscription.poll()
        earlier.set_back()
        with raw_connection() as killer:
            killer.execute("KILL %s", [connection.connection.thread_id()])
        sent = [OutgoingMessage(n, key="k") for n in range(19, 27)]
        Background(lambda: publish_many(TOPIC, sent)).start().result()
        assert [delivery.payload for delivery in consume(subscription, 8)] == [*range(19, 27)]


@override_settings(MQUEUE=CALM)
def test_a_round_of_settling_that_was_begun_before_tells_nothing() -> None:
    """The round began with an offset that the restored log has not assigned yet. It must not settle that offset."""
    publish_many(TOPIC, five(0))
    with Subscription(TOPIC, GROUP) as subscription:
        consume(subscription, 5)
        settle(subscription)
    earlier, held = Earlier(), RawConnection()
    try:
        publish_many(TOPIC, five(5))
        noted = in_log(TOPIC)[-1]
        held.execute(
            "SELECT 1 FROM queue_offsets FORCE INDEX (queue_offsets_partition) WHERE consumer_group = ''"
            " AND topic = '' LOCK IN SHARE MODE"
        )
        settler = Settler("default", TOPIC)
        assert settler.advance() == earlier.newest
        assert settler.pending
    finally:
        held.close()
    earlier.set_back()
    wait_until(lambda: settler.advance() and not settler.pending, "the round is over")
    assert settler.settled == offsets.settled("default", TOPIC) == earlier.newest < noted


def test_telling_waits_for_nobody_who_has_the_newest_message_locked() -> None:
    """The settler checks that the newest message exists. It reads it without a lock."""
    publish(TOPIC, 0)
    with Subscription(TOPIC, GROUP) as subscription:
        consume(subscription, 1)
        newest = publish(TOPIC, 1).offset
        with raw_connection() as held:
            held.execute("SELECT 1 FROM queue_messages WHERE `offset` = %s FOR UPDATE", [newest])
            telling = Background(lambda: Settler("default", TOPIC).advance()).start()
            assert telling.result() == newest
        assert offsets.settled("default", TOPIC) == newest


@override_settings(MQUEUE=CALM)
def test_an_offset_that_is_another_partition_s_now_is_its_owner_s() -> None:
    """The worker has read offsets ahead. After the restore they belong to another partition.

    The worker claims them before it notices the restore, and gets nothing. The owner of the partition gets the
    messages.
    """
    with Subscription(TOPIC, GROUP, batch_size=1) as subscription:
        publish(TOPIC, 0, key="mine")
        consume(subscription, 1)
        settle(subscription)
        earlier = Earlier()
        publish_many(TOPIC, five(5, key="mine"))
        (first,) = poll_until(subscription, 1)
        earlier.set_back()
        publish_many(TOPIC, five(20, key="another's"))
        assert in_log(TOPIC)[1] == first.offset
        with pytest.raises(StaleDelivery):
            first.ack()
        state = engine_of(subscription).state
        got = engine_of(subscription).claimer.claim(10, 10)
        assert got == []
        assert not state.in_flight
        assert not DeliveryState.objects.filter(partition_key="another's").exists()
        with override_settings(MQUEUE=QUICK), Subscription(TOPIC, GROUP) as other:
            got = consume(other, 5)
        assert payloads(got) == [20, 21, 22, 23, 24]


@override_settings(MQUEUE=QUICK)
def test_a_new_connection_takes_nothing_from_handlers() -> None:
    """An open delivery stays open for any time. It is not delivered twice, and its ack counts."""
    with patch.object(quarantine, "RUN_TOGETHER_AFTER", 0), Subscription(TOPIC, GROUP) as subscription:
        publish_many(TOPIC, five(0))
        left, *others = sorted(poll_until(subscription, 5), key=lambda delivery: delivery.offset)
        subscription.ack(others)
        settle(subscription)
        connections.close_all()
        publish_many(TOPIC, five(5))
        assert payloads(consume(subscription, 5)) == [5, 6, 7, 8, 9]
        assert not engine_of(subscription).has_quarantined
        assert left.ack()
        settle(subscription)
        assert watermark(TOPIC, GROUP, "k") == Message.objects.latest("offset").offset


@pytest.mark.parametrize("is_killed", [False, True])
def test_workers_whose_database_is_set_back_go_on(is_killed: bool) -> None:
    """Three processes run, with or without a lost connection. None is restarted."""
    keys = [f"k{n}" for n in range(6)]

    def publish_some(number: int) -> None:
        publish_many("orders", [OutgoingMessage({"n": number}, key=key) for key in keys])

    def done(number: int) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM shop_step WHERE what = 'end' AND number = %s", [number])
            return bool(cursor.fetchone()[0] >= len(keys))

    with Workers({**FAST, "RETENTION": 0, "GC_INTERVAL": 0.1}) as workers:
        all_workers = [workers.start("orders:billing") for _ in range(3)]
        publish_some(1)
        wait_until(lambda: done(1), "they are at work")
        wait_until(lambda: len(in_log("orders")) == 0, "all is deleted")
        publish_some(2)
        wait_until(lambda: done(2), "all are done")
        earlier = Earlier()
        for number in range(3, 10):
            publish_some(number)
        wait_until(lambda: all(done(number) for number in range(3, 10)), "all are done")
        earlier.set_back()
        if is_killed:
            kill_others()
        for number in range(20, 24):
            publish_some(number)
        wait_until(lambda: all(done(number) for number in range(20, 24)), "none is lost")
        assert [worker.stop() for worker in all_workers] == [0, 0, 0]
