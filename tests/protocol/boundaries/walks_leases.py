"""Walks of membership: joining, leases, leaving. After each death, the partitions get an owner again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db.models import F

from django_mqueue import NotRegistered, Subscription, release, unsubscribe
from django_mqueue.models import PartitionLease, SubscriberHeartbeat
from django_mqueue.store.connection import session_lock
from django_mqueue.store.connection.session_lock import worker_session
from tests.support.subscribers import collect, engine_of, settle

from .looks import Seen, acked, heartbeats, leases, passed, positions
from .walks import DONE, FIRST, WALKER, Scene, Stage, walk

MINE, FREE, ANOTHERS = (("k", WALKER),), (("k", ""),), (("k", "predecessor"),)


@walk(heartbeats, Stage((), {0: 1}), Stage(((WALKER, True),), {0: 1}))
def start(scene: Scene) -> Iterator[None]:
    scene.publish(0)
    yield
    Subscription(scene.topic, FIRST, WALKER).open()


@walk(leases, Stage(MINE, {0: 2}), Stage(FREE, {0: 2}))
def start_in_the_place_of_one_of_the_same_name(scene: Scene) -> Iterator[None]:
    scene.claimed(0)
    yield
    scene.subscriber()


@walk(heartbeats, Stage(((WALKER, False),), {0: 2}), Stage(((WALKER, True),), {0: 2}))
def heartbeat_and_discovery(scene: Scene) -> Iterator[None]:
    scene.claimed(0)
    scene.run_out()
    yield
    scene.engine.membership.discover_now()


@walk(heartbeats, Stage((), {0: 2}), Stage(((WALKER, True),), {0: 2}))
def heartbeat_of_one_whose_row_is_gone(scene: Scene) -> Iterator[None]:
    """No row says which incarnation had the name, so another subscriber must wait until the lease expires."""
    scene.claimed(0)
    scene.run_out()
    SubscriberHeartbeat.objects.filter(topic=scene.topic).delete()
    yield
    scene.engine.membership.discover_now()


@walk(leases, Stage((), {0: 1}))
def discovery_of_one_whose_group_is_gone(scene: Scene) -> Iterator[None]:
    scene.claimed(0)
    engine = scene.engine
    unsubscribe(scene.topic, FIRST)
    yield
    with pytest.raises(NotRegistered):
        engine.membership.discover_now()


@walk(leases, Stage((), {0: 1}), Stage(MINE, {0: 1}))
def lease_a_new_partition(scene: Scene) -> Iterator[None]:
    scene.publish(0)
    engine = engine_of(scene.subscriber())
    yield
    engine.membership.discover_now()


@walk(leases, Stage((), {0: 1}), Stage(MINE, {0: 1}))
def lease_a_new_partition_between_discoveries(scene: Scene) -> Iterator[None]:
    engine = engine_of(scene.subscriber())
    engine.tick()
    scene.publish(0)
    yield
    engine.tailer.tick()
    engine.tick()


@walk(leases, Stage(FREE, {0: DONE, 1: 1}), Stage(MINE, {0: DONE, 1: 1}))
def lease_a_free_partition(scene: Scene) -> Iterator[None]:
    (delivery,) = scene.claimed(0, name="predecessor")
    delivery.ack()
    scene.subscription.close()
    scene.publish(1)
    engine = engine_of(scene.subscriber())
    yield
    engine.membership.discover_now()


@walk(leases, Stage(ANOTHERS, {0: 2}), Stage(MINE, {0: 2}))
def lease_an_expired_partition(scene: Scene) -> Iterator[None]:
    """The former owner died with a message in flight."""
    scene.claimed(0, name="predecessor")
    scene.run_out()
    engine = engine_of(scene.subscriber())
    yield
    engine.membership.discover_now()


@walk(leases, Stage(MINE, {0: 2}), Stage(FREE, {0: 2}))
def release_a_lease_by_hand(scene: Scene) -> Iterator[None]:
    scene.claimed(0)
    yield
    assert int(release(scene.topic, FIRST, partition="k")) == 1


@walk(
    leases,
    Stage((("a", WALKER), ("b", WALKER)), {0: 2, 1: 2}),
    Stage((("a", ""), ("b", "")), {0: 2, 1: 2}),
)
def release_all_leases_of_a_subscriber_by_hand(scene: Scene) -> Iterator[None]:
    scene.publish(0, key="a")
    scene.publish(1, key="b")
    assert len(scene.subscriber().poll()) == 2
    yield
    assert int(release(scene.topic, FIRST, subscriber=WALKER)) == 2


def renewed(topic: str) -> Seen:
    rows = PartitionLease.objects.filter(topic=topic).order_by("partition_key")
    return tuple((row.leased_by, row.lease_renewed_at >= row.leased_at) for row in rows)


@walk(renewed, Stage(((WALKER, False),), {0: 2}), Stage(((WALKER, True),), {0: 2}))
def renew(scene: Scene) -> Iterator[None]:
    scene.claimed(0)
    scene.run_out()
    scene.engine.state.check_leases = True
    yield
    scene.engine.membership.tick()


@walk(renewed, Stage((("thief", True),), {0: 2}))
def renew_what_was_stolen(scene: Scene) -> Iterator[None]:
    scene.claimed(0)
    engine = scene.engine
    scene.run_out()
    engine_of(scene.subscriber(name="thief")).membership.discover_now()
    engine.state.check_leases = True
    yield
    engine.membership.tick()
    assert not engine.state.partitions


@walk(
    leases,
    Stage((("a", WALKER), ("b", WALKER)), {0: 1, 1: 1}),
    Stage((("a", ""), ("b", WALKER)), {0: 1, 1: 1}),
)
def release_to_a_newcomer(scene: Scene) -> Iterator[None]:
    scene.publish(0, key="a")
    scene.publish(1, key="b")
    engine = engine_of(scene.subscriber())
    engine.membership.discover_now()
    scene.subscriber(name="newcomer")
    yield
    engine.membership.discover_now()


@walk(
    lambda topic: (leases(topic), positions(topic)),
    Stage((MINE, ("k",)), {0: DONE}, {0: DONE}),
    Stage(((), ()), {0: DONE}, {0: DONE}),
)
def give_up_a_drained_partition(scene: Scene) -> Iterator[None]:
    """The log has no row of the partition, so its watermark is deleted with the lease."""
    scene.done(0)
    collect(scene.topic)
    scene.be_idle()
    yield
    scene.engine.membership.discover_now()


@walk(
    lambda topic: (leases(topic), positions(topic)),
    Stage((MINE, ("k",)), {0: DONE}),
    Stage(((), ("k",)), {0: DONE}),
)
def give_up_a_partition_that_another_group_is_not_done_with(scene: Scene) -> Iterator[None]:
    (delivery,) = scene.claimed(0)
    delivery.ack()
    settle(scene.subscription)
    scene.be_idle()
    yield
    scene.engine.membership.discover_now()


@walk(leases, Stage(ANOTHERS, {0: 2}), Stage(FREE, {0: 2}), Stage(MINE, {0: 2}))
def take_over_from_a_worker_whose_session_has_ended(scene: Scene) -> Iterator[None]:
    scene.claimed(0, name="predecessor")
    engine = engine_of(scene.subscriber())
    with worker_session("default", 600) as prepare:
        prepare()
        lock = session_lock.of("default")
        assert lock is not None
        lock._taken_at -= 10
        SubscriberHeartbeat.objects.filter(topic=scene.topic, subscriber_name="predecessor").update(
            heartbeat_at=F("heartbeat_at") - 100_000, session_lock=f"{lock._name[:-4]}dead"
        )
        yield
        engine.membership.discover_now()


def progress(topic: str) -> Seen:
    return (acked(topic), passed(topic), leases(topic), heartbeats(topic))


ALIVE, GONE = ((WALKER, True),), ((WALKER, False),)


@walk(
    progress,
    Stage(((True, False), 0, MINE, ALIVE), {0: DONE, 1: 2}),
    Stage(((True, False), 1, MINE, ALIVE), {0: DONE, 1: 2}),
    Stage(((True, False), 1, FREE, GONE), {0: DONE, 1: 2}),
)
def stop(scene: Scene) -> Iterator[None]:
    found = scene.claimed(0, 1)
    found[0].ack()
    yield
    scene.subscription.close()


@walk(
    progress,
    Stage(((), 0, (), ()), {0: 1}),
    Stage(((), 0, (), ALIVE), {0: 1}),
    Stage(((), 0, MINE, ALIVE), {0: 1}),
    Stage(((False,), 0, MINE, ALIVE), {0: 2}),
    Stage(((True,), 0, MINE, ALIVE), {0: DONE}),
    Stage(((True,), 1, MINE, ALIVE), {0: DONE}),
    Stage(((True,), 1, FREE, GONE), {0: DONE}),
)
def whole_life_of_a_subscriber(scene: Scene) -> Iterator[None]:
    scene.publish(0)
    yield
    with Subscription(scene.topic, FIRST, WALKER) as subscription:
        (delivery,) = subscription.poll()
        delivery.ack()
