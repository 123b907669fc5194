"""Walks of what is published in the transaction that settles a message. The hooks of jobs use this."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from django_mqueue import Delivery, publish

from .looks import acked, ended, payloads, states
from .walks import DONE, FIRST, Dead, Scene, Stage, walk

EFFECT = 10


def hooked(scene: Scene) -> Delivery:
    """Return a delivery of 0. The transaction that settles it publishes ``EFFECT``."""

    def then() -> None:
        publish(scene.topic, EFFECT, key="k")

    def after_failure(using: str, offset: int, is_final: bool) -> None:
        then()

    (delivery,) = scene.claimed(0)
    state = scene.engine.state
    state.options = replace(state.options, after_failure=after_failure)
    delivery.status.then = then
    return delivery


@walk(
    lambda topic: (acked(topic), payloads(topic)),
    Stage(((False,), (0,)), {0: 2}),
    Stage(((True,), (0, EFFECT)), {0: DONE, EFFECT: 1}),
)
def ack_with_a_hook(scene: Scene) -> Iterator[None]:
    delivery = hooked(scene)
    yield
    delivery.ack()


@walk(
    lambda topic: (acked(topic), payloads(topic)),
    Stage(((False,), (0,)), {0: 2}),
    Stage(((True,), (0, EFFECT)), {0: DONE, EFFECT: 1}),
)
def an_atomic_handler_with_a_hook(scene: Scene) -> Iterator[None]:
    delivery = hooked(scene)
    yield
    with delivery.atomic():
        pass


@walk(
    lambda topic: (states(topic, "failure_count", "in_flight"), payloads(topic)),
    Stage((((0, True),), (0,)), {0: 2}),
    Stage((((1, False),), (0, EFFECT)), {0: 2, EFFECT: 1}),
)
def nack_with_a_hook(scene: Scene) -> Iterator[None]:
    delivery = hooked(scene)
    yield
    delivery.nack(error="no")


@walk(
    lambda topic: (ended(topic), payloads(topic)),
    Stage((((False,), ()), (0,)), {0: 2}),
    Stage((((True,), ((0, FIRST, 1),)), (0, EFFECT)), {0: Dead(1), EFFECT: 1}),
)
def reject_with_a_hook(scene: Scene) -> Iterator[None]:
    delivery = hooked(scene)
    yield
    delivery.reject("no")
