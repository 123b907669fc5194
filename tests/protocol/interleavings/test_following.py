"""Groups that follow the log: they register during a collection, and two readers meet at the same moment."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from django.db.models import F
from django.test import override_settings

from django_mqueue import Subscription, publish, unsubscribe
from django_mqueue.exceptions import GroupTaken, NotRegistered
from django_mqueue.models import SubscriberHeartbeat
from django_mqueue.protocol.settling import Settler
from django_mqueue.service.registration import is_registered
from django_mqueue.spark.database import following
from django_mqueue.store.heartbeats import beat
from django_mqueue.store.leases import Holder
from tests.support.subscribers import collect, in_log, lock_topic
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait, wait_until

from .sides import STILL, ends, finished, waits
from .steps import COMMIT, Stopped

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "archive"
BEAT_ROW = "INSERT INTO queue_subscriber_heartbeats"


def follow() -> following.ReaderPosition:
    return following.follow(TOPIC, GROUP, 0, 0, using="default")


def settle() -> None:
    settler = Settler("default", TOPIC)
    assert settler.advance() == settler.shared_settled == in_log(TOPIC)[-1]


def reader(name: str) -> Holder:
    return Holder(GROUP, TOPIC, f"{following.READER_PREFIX}{name}", name)


def join(name: str) -> None:
    following.join_all([reader(name)], using="default")


def test_a_reader_registers_while_a_collection_is_under_way() -> None:
    """A (collection) has locked the topic and stops. B registers and waits for A.

    B begins with the remaining messages.
    """
    with ExitStack() as stack:
        collection = stack.enter_context(HeldTransaction(lambda: lock_topic(TOPIC)))
        newcomer = stack.enter_context(Background(follow))
        wait_for_lock_wait(newcomer)
        assert not is_registered(TOPIC, GROUP, "default")
        collection.commit()
        assert newcomer.result().above == 0


@pytest.mark.parametrize("step", ["INSERT INTO queue_offsets (consumer_group", COMMIT])
@override_settings(MQUEUE=STILL)
def test_a_collection_begins_while_a_reader_registers(step: str) -> None:
    """A registers and stops. B (collection) does not wait, and deletes nothing that A's group must still read."""
    with Subscription(TOPIC, "billing") as worker:
        there = finished(worker, 1)
        with Stopped(follow, step) as newcomer:
            ends(lambda: collect(TOPIC))
            assert newcomer.go().above == 0
        collect(TOPIC)
        assert in_log(TOPIC) == there


def test_two_become_the_reader_at_once() -> None:
    """A has found no other reader and stops. B joins and waits for A. A is the reader.

    B sees its heartbeats and is refused.
    """
    publish(TOPIC, 1)
    follow()
    with (
        Stopped(lambda: join("a"), BEAT_ROW) as first,
        Background(lambda: join("b")) as second,
    ):
        wait_for_lock_wait(second)
        first.go()

        def told() -> bool:
            beat("default", reader("a"))
            return second.is_done

        wait_until(told, "the second reader is told")
        with pytest.raises(GroupTaken, match="is alive"):
            second.result()


def test_two_processes_of_one_query_join_its_topics_at_once() -> None:
    """A stops before it joins the second topic. B joins and waits for A. B becomes the reader of both topics."""

    def every(process: str) -> list[Holder]:
        return [
            Holder(GROUP, topic, f"{following.READER_PREFIX}q", process) for topic in ("orders", "payments")
        ]

    def join_all(process: str) -> None:
        following.join_all(every(process), using="default")

    with (
        Stopped(lambda: join_all("a"), "INSERT INTO queue_offsets", skip=1) as first,
        Background(lambda: join_all("b")) as second,
    ):
        wait_for_lock_wait(second)
        first.go()
        second.result()
    for theirs, mine in zip(every("a"), every("b"), strict=True):
        following.check_reader(mine, using="default")
        with pytest.raises(GroupTaken, match="was started again in another process"):
            following.check_reader(theirs, using="default")


def test_a_silent_reader_moves_while_its_place_is_taken() -> None:
    """B has sent no heartbeat for long. A takes its place and stops. B moves, waits for A, and is refused."""
    offset = publish(TOPIC, 1).offset
    assert offset is not None
    place = follow()
    settle()
    join("b")
    SubscriberHeartbeat.objects.update(heartbeat_at=F("heartbeat_at") - 60_000)

    def move() -> None:
        following.move(TOPIC, GROUP, place.generation, offset, using="default", reader=reader("b"))

    with (
        Stopped(lambda: join("a"), BEAT_ROW) as taking,
        pytest.raises(GroupTaken, match="another reader replaced it") as told,
    ):
        waits(taking, move)
    assert told.value.subscribers == [f"{following.READER_PREFIX}a"]
    assert following.position(TOPIC, GROUP, using="default") == place


def test_a_reader_moves_while_its_group_is_registered_anew() -> None:
    """A moves and stops. B registers the group again and waits for A.

    The new registration does not take A's position.
    """
    offset = publish(TOPIC, 1).offset
    assert offset is not None
    place = follow()
    settle()

    def anew() -> following.ReaderPosition:
        unsubscribe(TOPIC, GROUP)
        return follow()

    with Stopped(
        lambda: following.move(TOPIC, GROUP, place.generation, offset, using="default"), COMMIT
    ) as moving:
        again = waits(moving, anew)
    assert again.generation != place.generation
    assert again.above == 0
    with pytest.raises(NotRegistered):
        following.move(TOPIC, GROUP, place.generation, offset, using="default")
