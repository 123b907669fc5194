"""Walks of an operator who removes messages, erases them, or sends them to the front."""

from __future__ import annotations

from collections.abc import Iterator

from django_mqueue.inspect import erase, remove, send_to_front

from .looks import Seen, payloads, states
from .walks import DONE, FIRST, Scene, Stage, walk


def one_waits_and_one_is_new(scene: Scene) -> None:
    scene.claimed(0)[0].nack()
    scene.publish(1)


def done(topic: str) -> Seen:
    return states(topic, "acked")


@walk(
    done,
    Stage(((False,),), {0: 2, 1: 1}),
    Stage(((True,),), {0: DONE, 1: 1}),
    Stage(((True,), (True,)), {0: DONE, 1: DONE}),
)
def remove_one_that_waits_and_one_that_is_new(scene: Scene) -> Iterator[None]:
    """Each message is removed in a transaction of its own. The second group is not affected and gets both."""
    one_waits_and_one_is_new(scene)
    yield
    remove(scene.topic, group=FIRST, key="k")


@walk(
    lambda topic: states(topic, "acked", "in_flight", "invisible_until")[1:],
    Stage((), {0: 2, 1: 1}),
    Stage(((False, False, 2),), {0: 2, 1: 1}),
)
def send_one_to_the_front(scene: Scene) -> Iterator[None]:
    """The message's next delivery is still its first attempt."""
    one_waits_and_one_is_new(scene)
    yield
    send_to_front(scene.topic, group=FIRST, key="k", status="pending")


@walk(
    lambda topic: (*payloads(topic), *states(topic, "acked")),
    Stage((0, 1, (False,)), {0: 2, 1: 1}),
    Stage((), {}, {}),
)
def erase_one_that_waits_and_one_that_is_new(scene: Scene) -> Iterator[None]:
    """Neither group gets the messages after the commit. No delivery state stays behind."""
    one_waits_and_one_is_new(scene)
    yield
    erase(topic=scene.topic, key="k")
