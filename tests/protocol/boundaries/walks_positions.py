"""Walks of an operator who resets, pauses or resumes a group."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from django_mqueue import pause, reset, resume
from django_mqueue.models import Message
from tests.support.subscribers import in_log, settle

from .looks import Seen, paused
from .walks import DONE, FIRST, SECOND, Scene, Stage, walk
from .walks_topics import HAS_ALL, belongings, remains, with_belongings, with_much

BEGINS_ANEW = (True, (), (), 0)
LEFT = (True, (("k", ""),), ("k",), 2)


@walk(
    belongings,
    Stage(HAS_ALL, {0: DONE, 1: 2}),
    Stage(BEGINS_ANEW, {0: 1, 1: 1}),
)
def reset_to_the_earliest(scene: Scene) -> Iterator[None]:
    """The group keeps its position, or starts at the beginning with nothing acked. No state lies between the two."""
    with_belongings(scene)
    yield
    reset(scene.topic, FIRST, "earliest", force=True)


AT_THE_START = {0: 1, 1: 1}
HALF_REMOVED = (True, (), (), 1)


@walk(
    remains,
    Stage((HAS_ALL, False), {0: DONE, 1: 2}),
    Stage((HALF_REMOVED, True), AT_THE_START),
    Stage((BEGINS_ANEW, True), AT_THE_START),
    Stage((BEGINS_ANEW, False), AT_THE_START),
)
def reset_of_a_group_with_much_behind_it(scene: Scene) -> Iterator[None]:
    """Workers of either group remove the rows that the dead process left. Only then is a message delivered."""
    with_much(scene)
    yield
    reset(scene.topic, FIRST, "earliest", force=True)


@walk(belongings, Stage(HAS_ALL, {0: DONE, 1: 2}), Stage(BEGINS_ANEW, {0: DONE, 1: DONE}, {0: 1, 1: 1}))
def reset_to_the_latest(scene: Scene) -> Iterator[None]:
    """Only the first group skips the messages."""
    with_belongings(scene)
    yield
    reset(scene.topic, FIRST, "latest", force=True)


def place(topic: str) -> Seen:
    return belongings(topic), paused(topic)


STANDS_STILL = (FIRST,)


@walk(
    place,
    Stage((LEFT, STANDS_STILL), {0: DONE, 1: DONE}, {0: 1, 1: 1}, paused=STANDS_STILL),
    Stage((BEGINS_ANEW, STANDS_STILL), {0: DONE, 1: 1}, {0: 1, 1: 1}, paused=STANDS_STILL),
)
def reset_of_a_paused_group_to_a_time(scene: Scene) -> Iterator[None]:
    """The group stays paused at both positions, and none of its subscribers runs."""
    for delivery in scene.claimed(0, 1):
        delivery.ack()
    settle(scene.subscription)
    scene.subscription.close()
    pause(scene.topic, FIRST)
    Message.objects.filter(offset=in_log(scene.topic)[0]).update(published_at=1_000_000_000_000)
    yield
    reset(scene.topic, FIRST, datetime(2020, 1, 1, tzinfo=UTC))


BOTH = (FIRST, SECOND)
ONE_IN_HAND = {0: 2, 1: 1}


def one_in_hand(scene: Scene) -> None:
    scene.claimed(0)
    scene.publish(1)


@walk(
    paused, Stage((), ONE_IN_HAND, {0: 1, 1: 1}), Stage((FIRST,), ONE_IN_HAND, {0: 1, 1: 1}, paused=(FIRST,))
)
def pause_a_group(scene: Scene) -> Iterator[None]:
    one_in_hand(scene)
    yield
    pause(scene.topic, FIRST)


@walk(
    paused,
    Stage((), ONE_IN_HAND, {0: 1, 1: 1}),
    Stage(BOTH, ONE_IN_HAND, {0: 1, 1: 1}, paused=BOTH),
)
def pause_a_topic(scene: Scene) -> Iterator[None]:
    """All groups of the topic are paused, or none."""
    one_in_hand(scene)
    yield
    pause(scene.topic)


@walk(
    paused, Stage((FIRST,), ONE_IN_HAND, {0: 1, 1: 1}, paused=(FIRST,)), Stage((), ONE_IN_HAND, {0: 1, 1: 1})
)
def resume_a_group(scene: Scene) -> Iterator[None]:
    one_in_hand(scene)
    pause(scene.topic, FIRST)
    yield
    resume(scene.topic, FIRST)


@walk(
    paused,
    Stage(BOTH, ONE_IN_HAND, {0: 1, 1: 1}, paused=BOTH),
    Stage((), ONE_IN_HAND, {0: 1, 1: 1}),
)
def resume_a_topic(scene: Scene) -> Iterator[None]:
    one_in_hand(scene)
    pause(scene.topic)
    yield
    resume(scene.topic)
