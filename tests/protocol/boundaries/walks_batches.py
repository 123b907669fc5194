"""Walks of operations on a batch: all of it is settled at once, or nothing."""

from __future__ import annotations

from collections.abc import Iterator

from django_mqueue import Delivery, publish
from django_mqueue.protocol.acknowledging.transactional import atomically
from tests.support.subscribers import acknowledger_of

from .looks import acked, ended, payloads, states
from .walks import DONE, Dead, Scene, Stage, walk

UNANSWERED = {0: 2, 1: 2, 2: 2}


@walk(
    lambda topic: (acked(topic), payloads(topic)),
    Stage(((False, False, False), (0, 1, 2)), UNANSWERED),
    Stage(((True, True, True), (0, 1, 2, 3)), {0: DONE, 1: DONE, 2: DONE, 3: 1}),
)
def an_atomic_batch(scene: Scene) -> Iterator[None]:
    """The published message and the acks of the whole batch are committed together."""
    found = scene.claimed(0, 1, 2)
    yield
    with atomically(found):
        publish(scene.topic, 3, key="k")


@walk(
    lambda topic: states(topic, "in_flight", "failure_count"),
    Stage(((1, 0), (1, 0), (1, 0)), UNANSWERED),
    Stage(((0, 1), (0, 1), (0, 1)), UNANSWERED),
)
def nack_of_a_batch(scene: Scene) -> Iterator[None]:
    found = scene.claimed(0, 1, 2)
    yield
    found[0].status.acknowledger.nack_or_postpone(found, 0, "no")


@walk(
    lambda topic: states(topic, "in_flight", "handed"),
    Stage(((1, 1), (1, 1), (1, 1)), UNANSWERED),
    Stage(((0, 0), (0, 0), (0, 0)), {0: 1, 1: 1, 2: 1}),
)
def putting_back_what_was_rolled_back(scene: Scene) -> Iterator[None]:
    """No attempt is counted."""
    found = scene.claimed(0, 1, 2)
    yield
    found[0].status.acknowledger.nack_or_postpone(found, 0, None)


@walk(
    ended,
    Stage(((False, False), ()), {0: 2, 1: 2}),
    Stage(((True, False), ((0, "first", 1),)), {0: Dead(1), 1: 2}),
)
def reject_of_one_that_hangs(scene: Scene) -> Iterator[None]:
    """The worker rejects a delivery whose handler hangs, in a transaction that waits for no lock."""
    found = scene.claimed(0, 1)

    def answer(free: list[Delivery]) -> list[Delivery]:
        free[0].reject("too long")
        return []

    yield
    assert acknowledger_of(found[0]).settle_unlocked(found[:1], answer) == ([], [])
