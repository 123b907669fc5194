"""Walks of groups that read the log by themselves: they start, get a reader, and move on."""

from __future__ import annotations

from collections.abc import Iterator

from django_mqueue import subscribe
from django_mqueue.models import Message, Offset
from django_mqueue.protocol.settling import Settler
from django_mqueue.spark.database import following
from django_mqueue.store.heartbeats import beat
from django_mqueue.store.leases import Holder
from django_mqueue.store.offsets import READS_LOG
from tests.support.subscribers import in_log

from .looks import Seen, heartbeats, is_registered
from .walks import DONE, WALKER, Scene, Stage, walk

READER = "reader"
DONE_BY_ALL = {0: DONE, 1: DONE}


def place(topic: str) -> Seen:
    """Return whether the group is registered and, if it reads by itself, how many messages it has passed."""
    row = Offset.objects.filter(topic=topic, consumer_group=READER, partition_key="", scan_offset=READS_LOG)
    passed = [Message.objects.filter(topic=topic, offset__lte=start.offset_acked).count() for start in row]
    return (is_registered(topic, READER), *passed)


def presence(topic: str) -> Seen:
    return heartbeats(topic, READER)


def follow(scene: Scene, above: int = 0) -> following.ReaderPosition:
    return following.follow(scene.topic, READER, above, 0, using="default")


def settle(scene: Scene) -> None:
    settler = Settler("default", scene.topic)
    assert settler.advance() == settler.shared_settled == in_log(scene.topic)[-1]


def reader(scene: Scene) -> Holder:
    return Holder(READER, scene.topic, WALKER, WALKER)


def joined(scene: Scene) -> Holder:
    """Both groups are done with two messages. The reader has joined and still has to read both."""
    scene.done(0, 1)
    follow(scene)
    me = reader(scene)
    following.join_all([me], using="default")
    return me


@walk(
    place,
    Stage((False,), DONE_BY_ALL, DONE_BY_ALL),
    Stage((True, 0), DONE_BY_ALL, DONE_BY_ALL, reads={READER: (0, 1)}),
)
def follow_with_a_new_group(scene: Scene) -> Iterator[None]:
    """Deletion runs right after the death. It may delete what all groups are done with, but none of the new group's."""
    scene.done(0, 1)
    yield
    follow(scene)


@walk(
    place,
    Stage((True,), DONE_BY_ALL, DONE_BY_ALL, {READER: {0: 1, 1: 1}}),
    Stage((True, 0), DONE_BY_ALL, DONE_BY_ALL, reads={READER: (0, 1)}),
)
def follow_with_a_group_that_was_subscribed(scene: Scene) -> Iterator[None]:
    """The group is registered all the time, for workers or for a reader. Nothing is deleted between the two."""
    subscribe(scene.topic, READER)
    scene.done(0, 1)
    yield
    follow(scene)


@walk(place, Stage((True, 1), DONE_BY_ALL, DONE_BY_ALL, reads={READER: (1,)}))
def follow_once_more(scene: Scene) -> Iterator[None]:
    """A group that is already registered keeps its position, whatever position it asks for."""
    scene.done(0, 1)
    place = follow(scene)
    settle(scene)
    following.move(scene.topic, READER, place.generation, in_log(scene.topic)[0], using="default")
    yield
    follow(scene)


ALL = {0: DONE, 1: DONE, 2: DONE}


@walk(
    place,
    Stage((True, 0), ALL, ALL, reads={READER: (0, 1, 2)}),
    Stage((True, 2), ALL, ALL, reads={READER: (2,)}),
)
def move_a_reader(scene: Scene) -> Iterator[None]:
    scene.done(0, 1, 2)
    place = follow(scene)
    to = in_log(scene.topic)[1]
    settle(scene)
    yield
    following.move(scene.topic, READER, place.generation, to, using="default")


BOTH_TO_READ = {READER: (0, 1)}


@walk(
    presence,
    Stage((), DONE_BY_ALL, DONE_BY_ALL, reads=BOTH_TO_READ),
    Stage(((WALKER, True),), DONE_BY_ALL, DONE_BY_ALL, reads=BOTH_TO_READ),
)
def join_as_a_reader(scene: Scene) -> Iterator[None]:
    """The same reader can join again at once. Another reader can join when the dead one has been silent for long."""
    scene.done(0, 1)
    follow(scene)
    yield
    following.join_all([reader(scene)], using="default")


@walk(
    presence,
    Stage(((WALKER, False),), DONE_BY_ALL, DONE_BY_ALL, reads=BOTH_TO_READ),
    Stage(((WALKER, True),), DONE_BY_ALL, DONE_BY_ALL, reads=BOTH_TO_READ),
)
def beat_of_a_reader(scene: Scene) -> Iterator[None]:
    me = joined(scene)
    scene.run_out()
    yield
    beat("default", me)


@walk(
    presence,
    Stage(((WALKER, True),), DONE_BY_ALL, DONE_BY_ALL, reads=BOTH_TO_READ),
    Stage(((WALKER, False),), DONE_BY_ALL, DONE_BY_ALL, reads=BOTH_TO_READ),
)
def leave_as_a_reader(scene: Scene) -> Iterator[None]:
    me = joined(scene)
    yield
    following.leave(me, using="default")
