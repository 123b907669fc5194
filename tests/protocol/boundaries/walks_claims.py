"""Walks of claims: a committed claim counts as an attempt only if a handler received the message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from django_mqueue.messages import OutgoingMessage
from django_mqueue.models import Message
from django_mqueue.policy.names import one_at_a_time
from django_mqueue.protocol import watermarks
from django_mqueue.protocol.choosing import Claimable
from django_mqueue.protocol.subscriber import Subscriber
from django_mqueue.service.publish import publish_once
from tests.support.subscribers import engine_of

from .looks import Seen, ended, in_flight, leases, states
from .walks import DONE, Dead, Options, Scene, Stage, walk


def at_work(scene: Scene, **options: Unpack[Options]) -> Subscriber:
    """Return the engine of a subscriber that holds its leases and has claimed nothing."""
    engine = engine_of(scene.subscriber(**options))
    engine.tick()
    return engine


@walk(in_flight, Stage((), {0: 1, 1: 1}), Stage(((1, 1, 0), (1, 1, 0)), {0: 2, 1: 2}))
def claim_fresh(scene: Scene) -> Iterator[None]:
    scene.publish(0, 1)
    engine = at_work(scene)
    yield
    assert len(engine.claimer.claim(2, start_now=2)) == 2


@walk(in_flight, Stage((), {0: 1, 1: 1}), Stage(((1, 1, 0), (1, 0, 0)), {0: 2, 1: 1}))
def claim_fresh_and_one_ahead(scene: Scene) -> Iterator[None]:
    scene.publish(0, 1)
    engine = at_work(scene)
    yield
    assert len(engine.claimer.claim(2, start_now=1)) == 2


@walk(in_flight, Stage((), {0: 1, 1: 1}), Stage(((1, 1, 0),), {0: 2, 1: 1}))
def claim_the_head_of_a_strict_partition(scene: Scene) -> Iterator[None]:
    scene.publish(0, 1)
    engine = at_work(scene, strict=True)
    yield
    assert len(engine.claimer.claim(2, start_now=2)) == 1


@walk(in_flight, Stage(((0, 1, 0),), {0: 2}), Stage(((1, 1, 1),), {0: 3}))
def claim_again_after_nack(scene: Scene) -> Iterator[None]:
    (delivery,) = scene.claimed(0)
    delivery.nack()
    yield
    assert len(scene.engine.claimer.claim(1, start_now=1)) == 1


@walk(in_flight, Stage(((0, 0, 0),), {0: 1}), Stage(((1, 1, 0),), {0: 2}))
def claim_again_after_postpone(scene: Scene) -> Iterator[None]:
    (delivery,) = scene.claimed(0)
    delivery.postpone()
    yield
    assert len(scene.engine.claimer.claim(1, start_now=1)) == 1


@walk(
    in_flight,
    Stage(((0, 1, 0),), {0: 2, 1: 1}),
    Stage(((1, 1, 1), (1, 1, 0)), {0: 3, 1: 2}),
)
def claim_what_waits_and_what_is_fresh(scene: Scene) -> Iterator[None]:
    (delivery,) = scene.claimed(0)
    delivery.nack()
    scene.publish(1)
    scene.engine.tailer.tick()
    yield
    assert len(scene.engine.claimer.claim(2, start_now=2)) == 2


def suspected(topic: str) -> Seen:
    return states(topic, "alone", "retry_count")


@walk(suspected, Stage(((0, 0), (0, 0)), {0: 2, 1: 2}), Stage(((1, 1), (0, 0)), {0: 3, 1: 2}))
def claim_a_suspect_alone(scene: Scene) -> Iterator[None]:
    """The predecessor died with two messages in flight. Each of them may have caused its death."""
    scene.claimed(0, 1, name="predecessor")
    scene.run_out()
    engine = at_work(scene)
    yield
    assert len(engine.claimer.claim_quarantined(alone=True)) == 1


@walk(suspected, Stage(((0, 0),), {0: 2}), Stage(((0, 1),), {0: 3}))
def claim_a_suspect_beside_others(scene: Scene) -> Iterator[None]:
    scene.claimed(0, name="predecessor")
    scene.run_out()
    engine = at_work(scene)
    yield
    assert len(engine.claimer.claim_quarantined(alone=False)) == 1


def left_after_two_failures(scene: Scene) -> Subscriber:
    """Let two attempts fail and leave the third one in flight, not alone. Return the engine of the new owner."""
    for delivery in scene.claimed(0, name="predecessor"):
        delivery.nack()
    for _ in range(2):
        (delivery,) = scene.subscription.poll()
        if delivery.attempt < 3:
            delivery.nack()
    scene.run_out()
    return at_work(scene)


@walk(
    lambda topic: (suspected(topic), ended(topic)),
    Stage((((0, 2),), ((False,), ())), {0: 4}),
    Stage((((1, 3),), ((False,), ())), {0: Dead(3)}),
)
def claim_a_suspect_alone_for_the_last_time(scene: Scene) -> Iterator[None]:
    """This death, while the message runs alone, is its third failure. The next owner dead-letters the message."""
    engine = left_after_two_failures(scene)
    yield
    assert len(engine.claimer.claim_quarantined(alone=True)) == 1


@walk(suspected, Stage(((1, 3),), {0: Dead(3)}), Stage(((0, 3),), {0: 5}))
def let_a_suspect_run_beside_others(scene: Scene) -> Iterator[None]:
    """After this call, the death of the worker no longer counts as a failure of the message."""
    (delivery,) = left_after_two_failures(scene).claimer.claim_quarantined(alone=True)
    yield
    delivery.status.acknowledger.end_quarantine(delivery)


@walk(ended, Stage(((False,), ()), {0: 3}), Stage(((True,), ((0, "first", 1),)), {0: Dead(1)}))
def bury_a_suspect(scene: Scene) -> Iterator[None]:
    """The message has no attempts left. A worker died while it ran alone, and that is its one allowed failure."""
    scene.claimed(0, name="predecessor")
    scene.run_out()
    at_work(scene, name="another").claimer.claim_quarantined(alone=True)
    scene.run_out()
    engine = at_work(scene, max_attempts=1)
    yield
    assert engine.claimer.claim_quarantined(alone=True) == []


@walk(in_flight, Stage(((1, 1, 0),), {0: 2}), Stage(((0, 0, 0),), {0: 1}))
def undo_a_claim_whose_commit_was_lost(scene: Scene) -> Iterator[None]:
    """The connection broke at the COMMIT, and the server committed. No handler received the message."""
    (delivery,) = scene.claimed(0)
    claimer = scene.engine.claimer
    claimer._unknown_claim = (delivery.status.receipt.token, Claimable(fresh=[("k", delivery.offset)]))
    yield
    claimer.undo_unknown_claim()


@walk(
    ended,
    Stage(((), ()), {0: Dead(1)}, {0: Dead(1)}),
    Stage(((False,), ()), {0: Dead(1)}, {0: Dead(1)}),
    Stage(((True,), ((0, "first", 1),)), {0: Dead(1)}, {0: Dead(1)}),
)
def claim_what_cannot_be_decoded(scene: Scene) -> Iterator[None]:
    """No handler can receive this message. The worker that claims it dead-letters it, once for each group."""
    scene.publish(0)
    metadata = {"kind": "", "headers": {}, "encoding": "of another age"}
    Message.objects.filter(topic=scene.topic).update(metadata=metadata)
    engine = at_work(scene)
    yield
    assert engine.claimer.claim(1, start_now=1) == []


@walk(
    lambda topic: (leases(topic), in_flight(topic)),
    Stage(((), ()), {0: 1}),
    Stage(((("k", "walker"),), ()), {0: 1}),
    Stage(((("k", "walker"),), ((1, 1, 0),)), {0: 2}),
)
def first_poll(scene: Scene) -> Iterator[None]:
    """The first poll sends a heartbeat, discovers partitions, takes a lease, reads the tail and claims."""
    scene.publish(0)
    subscription = scene.subscriber()
    yield
    assert len(subscription.poll()) == 1


@walk(
    lambda topic: states(topic, "acked", "in_flight"),
    Stage((), {0: 1, 1: 1}),
    Stage(((False, True),), {0: 2, 1: 1}),
    Stage(((True, False),), {0: DONE, 1: 1}),
    Stage(((True, False), (False, True)), {0: DONE, 1: 2}),
)
def claims_from_a_partition_that_is_a_permit(scene: Scene) -> Iterator[None]:
    """Jobs with a limit are in such partitions. In no state, two messages are in flight."""
    for payload in (0, 1):
        message = OutgoingMessage(payload, id=str(payload))
        publish_once(scene.topic, message, one_at_a_time("x"), "default")
    subscription = scene.subscriber()
    watermarks.ADVANCE_INTERVAL = 3600.0  # Otherwise the second poll of a slow process moves the watermark.
    yield
    (first,) = subscription.poll()
    first.ack()
    (second,) = subscription.poll()
    assert second.payload == 1
