"""Walks of scheduled messages: publish, change and promote them, and park a retry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from django_mqueue import cancel, publish, reschedule, scheduled
from django_mqueue.protocol.promoting import Promoter

from .looks import Seen, acked, payloads
from .walks import DONE, Scene, Stage, walk

HOUR = 3600
PAST = datetime(2020, 1, 1, tzinfo=UTC)


def waiting(topic: str) -> Seen:
    return tuple((message.payload, message.at == PAST) for message in scheduled(topic))


def where(topic: str) -> Seen:
    """Return the payloads that are scheduled and the payloads in the log."""
    return tuple(message.payload for message in scheduled(topic)), payloads(topic)


def publish_later(topic: str) -> object:
    return publish(topic, 0, key="k", id="only", delay=HOUR)


@walk(waiting, Stage((), {}), Stage(((0, False),), {}), again=publish_later)
def publish_one_later(scene: Scene) -> Iterator[None]:
    yield
    publish_later(scene.topic)


@walk(waiting, Stage(((0, False),), {}), Stage(((1, True),), {1: 1}))
def replace_one_that_is_scheduled(scene: Scene) -> Iterator[None]:
    publish_later(scene.topic)
    yield
    publish(scene.topic, 1, key="k", id="only", at=PAST, on_duplicate="replace")


@walk(where, Stage(((0,), ()), {}), Stage(((), (1,)), {1: 1}))
def replace_one_that_is_scheduled_by_one_for_now(scene: Scene) -> Iterator[None]:
    publish_later(scene.topic)
    yield
    publish(scene.topic, 1, key="k", id="only", on_duplicate="replace")


@walk(waiting, Stage(((0, False),), {}), Stage(((0, True),), {0: 1}))
def reschedule_one(scene: Scene) -> Iterator[None]:
    publish_later(scene.topic)
    yield
    reschedule(scene.topic, "only", key="k", at=PAST)


@walk(waiting, Stage(((0, False),), {}), Stage((), {}))
def cancel_one(scene: Scene) -> Iterator[None]:
    publish_later(scene.topic)
    yield
    cancel(scene.topic, "only", key="k")


@walk(where, Stage(((0, 1), ()), {0: 1, 1: 1}), Stage(((), (0, 1)), {0: 1, 1: 1}))
def promotion_of_two(scene: Scene) -> Iterator[None]:
    for n in range(2):
        publish(scene.topic, n, key="k", id=str(n), at=PAST)
    yield
    Promoter("default", scene.topic).promote()


@walk(
    where,
    Stage(((0, 1), (10,)), {10: 1, 1: 1}, {10: 1, 1: 1}),
    Stage(((), (10, 1)), {10: 1, 1: 1}, {10: 1, 1: 1}),
)
def promotion_of_one_and_dropping_of_another(scene: Scene) -> Iterator[None]:
    """The log already holds the id of one message. It is dropped in the commit that promotes the other one."""
    for n in range(2):
        publish(scene.topic, n, key="k", id=str(n), at=PAST)
    publish(scene.topic, 10, key="k", id="0")
    yield
    Promoter("default", scene.topic).promote()


def done_and_waiting(topic: str) -> Seen:
    return acked(topic), tuple((message.payload, message.attempts) for message in scheduled(topic))


@walk(done_and_waiting, Stage(((False,), ()), {0: 2}), Stage(((True,), ((0, 1),)), {0: DONE}, {0: 1}))
def nack_for_hours(scene: Scene) -> Iterator[None]:
    (delivery,) = scene.claimed(0)
    yield
    delivery.nack(delay=2 * HOUR, error="no")


@walk(done_and_waiting, Stage(((False,), ()), {0: 2}), Stage(((True,), ((0, 0),)), {0: DONE}, {0: 1}))
def postpone_for_hours(scene: Scene) -> Iterator[None]:
    (delivery,) = scene.claimed(0)
    yield
    delivery.postpone(2 * HOUR)
