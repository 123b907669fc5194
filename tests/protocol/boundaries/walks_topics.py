"""Walks of operations on whole topics: watermarks, settling, deletion, registration."""

from __future__ import annotations

from collections.abc import Iterator

from django_mqueue import subscribe, unsubscribe
from django_mqueue.models import Message, Offset
from django_mqueue.protocol.retention.garbage_collection import Collector
from django_mqueue.protocol.settling import Settler
from django_mqueue.store import removal
from tests.support.subscribers import settle

from .looks import Seen, is_registered, leases, passed, payloads, positions, states
from .walks import DONE, FIRST, SECOND, Scene, Stage, walk


@walk(
    passed,
    Stage(0, {0: DONE, 1: DONE, 2: 2}),
    Stage(2, {0: DONE, 1: DONE, 2: 2}),
)
def watermark(scene: Scene) -> Iterator[None]:
    for delivery in scene.claimed(0, 1, 2)[:2]:
        delivery.ack()
    yield
    scene.engine.watermarks.tick(force=True)


def is_settled(topic: str) -> bool:
    """Return True if all workers know that no late commit can add a message below the newest one."""
    newest = Message.objects.filter(topic=topic).order_by("-offset").first()
    known = Offset.objects.get(consumer_group="", topic=topic, partition_key="")
    return newest is not None and known.offset_acked >= newest.offset


@walk(is_settled, Stage(False, {0: 1}), Stage(True, {0: 1}))
def settling_round(scene: Scene) -> Iterator[None]:
    scene.publish(0)
    settler = Settler("default", scene.topic)
    yield
    settler.advance()


def rows(topic: str) -> Seen:
    """Return the payloads in the log, and for how many messages each group keeps state."""
    return (payloads(topic), len(states(topic)), len(states(topic, group=SECOND)))


@walk(
    rows,
    Stage(((0, 1, 2), 3, 2), {0: DONE, 1: DONE, 2: DONE}, {0: DONE, 1: DONE, 2: 1}),
    Stage(((2,), 1, 0), {0: DONE, 1: DONE, 2: DONE}, {0: DONE, 1: DONE, 2: 1}),
)
def collect_a_page(scene: Scene) -> Iterator[None]:
    """All groups are done with two messages. The second group never received the third one."""
    scene.done(0, 1)
    scene.publish(2)
    first = scene.subscription
    first.poll()[0].ack()
    settle(first)
    yield
    Collector("default", scene.topic).collect_page()


@walk(
    lambda topic: (payloads(topic), positions(topic), positions(topic, SECOND)),
    Stage(((0,), ("k",), ("k",)), {0: DONE}, {0: DONE}),
    Stage(((), (), ()), {0: DONE}, {0: DONE}),
)
def collect_the_last_of_a_partition_that_nobody_leases(scene: Scene) -> Iterator[None]:
    scene.done(0)
    scene.be_idle()
    for engine in scene.engines:
        engine.membership.discover_now()
    yield
    Collector("default", scene.topic).collect_page()


@walk(rows, Stage(((0, 1), 2, 0), {0: DONE, 1: DONE}))
def collect_a_page_that_another_group_still_needs(scene: Scene) -> Iterator[None]:
    for delivery in scene.claimed(0, 1):
        delivery.ack()
    settle(scene.subscription)
    yield
    Collector("default", scene.topic).collect_page()


LATE = "late"
ALL_DONE = {0: DONE, 1: DONE}


def late_one(topic: str) -> bool:
    return is_registered(topic, LATE)


@walk(
    late_one,
    Stage(False, ALL_DONE, ALL_DONE),
    Stage(True, ALL_DONE, ALL_DONE, {LATE: {0: 1, 1: 1}}),
)
def subscribe_from_the_earliest(scene: Scene) -> Iterator[None]:
    """Deletion runs right after the death. It may delete what all groups are done with, but none of the new group's."""
    scene.done(0, 1)
    yield
    subscribe(scene.topic, LATE)


@walk(
    late_one,
    Stage(False, {0: 1}),
    Stage(True, {0: 1}, None, {LATE: {0: DONE}}),
)
def subscribe_from_the_latest(scene: Scene) -> Iterator[None]:
    scene.publish(0)
    yield
    subscribe(scene.topic, LATE, "latest")


def belongings(topic: str) -> Seen:
    return (is_registered(topic), leases(topic), positions(topic), len(states(topic)))


def unsubscribe_first(topic: str) -> object:
    return unsubscribe(topic, FIRST)


def with_belongings(scene: Scene) -> None:
    scene.claimed(0, 1)[0].ack()
    settle(scene.subscription)


HAS_ALL = (True, (("k", "walker"),), ("k",), 2)
HAS_STATE, HAS_NOTHING = (False, (), (), 1), (False, (), (), 0)


def remains(topic: str) -> Seen:
    """Also return whether a row says that a removal is not finished."""
    return (belongings(topic), Offset.objects.filter(topic=topic, partition_key=f"removal {FIRST}").exists())


def with_much(scene: Scene) -> None:
    """Prepare the same, but remove one row of each table at a time, so that the removal takes several transactions."""
    with_belongings(scene)
    removal.ROWS = 1


@walk(
    remains,
    Stage((HAS_ALL, False), {0: DONE, 1: 2}),
    Stage((HAS_STATE, True), {0: 1, 1: 1}),
    Stage((HAS_NOTHING, True), {0: 1, 1: 1}),
    Stage((HAS_NOTHING, False), {0: 1, 1: 1}),
)
def unsubscribe_and_come_again(scene: Scene) -> Iterator[None]:
    """The group's progress is removed with its registration. If it subscribes again, it gets all messages again."""
    with_much(scene)
    yield
    unsubscribe(scene.topic, FIRST)


@walk(
    remains,
    Stage((HAS_ALL, False), {}),
    Stage((HAS_STATE, True), {}),
    Stage((HAS_NOTHING, True), {}),
    Stage((HAS_NOTHING, False), None, {0: 1, 1: 1}),
    again=unsubscribe_first,
)
def unsubscribe_for_good(scene: Scene) -> Iterator[None]:
    """After the death the call is repeated and leaves nothing behind. Then only the other group holds back deletion."""
    with_much(scene)
    yield
    unsubscribe_first(scene.topic)
