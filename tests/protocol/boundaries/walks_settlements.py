"""Walks of acks, nacks and other settlements: each is applied completely or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import transaction

from django_mqueue import StaleDelivery, publish
from tests.support.subscribers import engine_of

from .looks import Seen, acked, ended, payloads, states
from .walks import DONE, Dead, Scene, Stage, walk

UNANSWERED = {0: 2}
"""A handler of the dead process received the message. This counts as an attempt, so the next one is the second."""


@walk(acked, Stage((False,), UNANSWERED), Stage((True,), {0: DONE}))
def ack(scene: Scene) -> Iterator[None]:
    (delivery,) = scene.claimed(0)
    yield
    delivery.ack()


@walk(
    acked,
    Stage((False, False, False), {0: 2, 1: 2, 2: 2}),
    Stage((True, False, True), {0: DONE, 1: 2, 2: DONE}),
)
def ack_many(scene: Scene) -> Iterator[None]:
    found = scene.claimed(0, 1, 2)
    yield
    scene.subscription.ack([found[2], found[0]])


@walk(acked, Stage((False,), UNANSWERED))
def ack_of_what_was_stolen(scene: Scene) -> Iterator[None]:
    (delivery,) = scene.claimed(0)
    scene.run_out()
    engine_of(scene.subscriber(name="thief")).membership.discover_now()
    yield
    with pytest.raises(StaleDelivery):
        delivery.ack()


@walk(
    lambda topic: (acked(topic), payloads(topic)),
    Stage(((False,), (0,)), UNANSWERED),
    Stage(((True,), (0, 1)), {0: DONE, 1: 1}),
)
def ack_and_publish_in_one_transaction(scene: Scene) -> Iterator[None]:
    (delivery,) = scene.claimed(0)
    yield
    with transaction.atomic():
        publish(scene.topic, 1, key="k")
        delivery.ack()


@walk(
    lambda topic: (acked(topic), payloads(topic)),
    Stage(((False,), (0,)), UNANSWERED),
    Stage(((True,), (0, 1)), {0: DONE, 1: 1}),
)
def an_atomic_handler(scene: Scene) -> Iterator[None]:
    """The published message and the ack are committed together."""
    (delivery,) = scene.claimed(0)
    yield
    with delivery.atomic():
        publish(scene.topic, 1, key="k")


@walk(
    lambda topic: states(topic, "acked", "in_flight", "handed"),
    Stage(((0, 1, 1), (0, 1, 0)), {0: 2, 1: 1}),
    Stage(((1, 0, 1), (0, 1, 1)), {0: DONE, 1: 2}),
)
def ack_and_hand_over_the_next(scene: Scene) -> Iterator[None]:
    """In one commit, a runner acks a finished delivery and hands over the next one, which it claimed ahead."""
    scene.publish(0, 1)
    engine = engine_of(scene.subscriber())
    engine.tick()
    one, next_one = engine.claimer.claim(2, start_now=1)
    yield
    engine.acknowledger.ack([one], [next_one])


@walk(
    lambda topic: states(topic, "acked", "in_flight", "handed"),
    Stage(((0, 1, 1),), {0: 2, 1: 1}),
    Stage(((1, 0, 1), (0, 1, 1)), {0: DONE, 1: 2}),
)
def ack_and_claim_the_next_of_a_strict_key(scene: Scene) -> Iterator[None]:
    """In one commit, a runner acks a finished delivery and claims the next message of its key."""
    scene.publish(0, 1)
    engine = engine_of(scene.subscriber(strict=True))
    engine.tick()
    (one,) = engine.claimer.claim(2, start_now=2)
    yield
    assert len(engine.ack_and_claim([one], [], 1, 1, 1)) == 1


def failed(topic: str) -> Seen:
    return states(topic, "in_flight", "handed", "failure_count")


@walk(failed, Stage(((1, 1, 0),), UNANSWERED), Stage(((0, 1, 1),), {0: 2}))
def nack(scene: Scene) -> Iterator[None]:
    (delivery,) = scene.claimed(0)
    yield
    delivery.nack(error="not this time")


@walk(failed, Stage(((1, 1, 0),), UNANSWERED), Stage(((0, 0, 0),), {0: 1}))
def postpone(scene: Scene) -> Iterator[None]:
    (delivery,) = scene.claimed(0)
    yield
    delivery.postpone()


def extended(topic: str) -> Seen:
    return tuple(until > at + 100_000 for until, at in states(topic, "invisible_until", "delivered_at"))


@walk(
    extended,
    Stage((False, False), {0: 2, 1: 2}),
    Stage((True, True), {0: 2, 1: 2}),
)
def extend(scene: Scene) -> Iterator[None]:
    found = scene.claimed(0, 1)
    yield
    found[0].status.acknowledger.extend(found, 3600)


@walk(
    lambda topic: states(topic, "in_flight", "handed"),
    Stage(((1, 0), (1, 0)), {0: 1, 1: 1}),
    Stage(((0, 0), (0, 0)), {0: 1, 1: 1}),
)
def give_back_what_was_not_started(scene: Scene) -> Iterator[None]:
    scene.publish(0, 1)
    engine = engine_of(scene.subscriber())
    engine.tick()
    found = engine.claimer.claim(2, start_now=0)
    yield
    engine.acknowledger.return_unstarted(found)


@walk(
    ended,
    Stage(((False, False), ()), {0: 2, 1: 2}),
    Stage(((True, False), ((0, "first", 1),)), {0: Dead(1), 1: 2}),
)
def reject(scene: Scene) -> Iterator[None]:
    found = scene.claimed(0, 1)
    yield
    found[0].reject("never")


@walk(
    ended,
    Stage(((False,), ()), {0: 3}),
    Stage(((True,), ((0, "first", 2),)), {0: Dead(2)}),
)
def nack_of_the_last_attempt(scene: Scene) -> Iterator[None]:
    scene.publish(0)
    subscription = scene.subscriber(max_attempts=2)
    subscription.poll()[0].nack()
    (delivery,) = subscription.poll()
    yield
    delivery.nack(error="once too often")
