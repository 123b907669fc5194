"""Walks of requests: ask, reply, reject, take the reply, abandon, and sweep the boxes of dead requesters."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

from django.db import connection

from django_mqueue import Delivery, OutgoingMessage, request
from django_mqueue.models import Message
from django_mqueue.protocol.retention.expired_replies import LINGER_MS, ExpiredReplies
from django_mqueue.service import requesting
from django_mqueue.service.requesting import PendingRequest

from .looks import Seen, acked, letters, payloads
from .walks import DONE, FIRST, Dead, Scene, Stage, walk

OPEN, ANSWERED, FAILED = None, 0, 1


def boxes(topic: str) -> Seen:
    """Return the state of each reply box: open, answered, or failed because there will be no reply."""
    rows = Message.objects.filter(topic=f"{topic}_replies").order_by("offset")
    return tuple(rows.values_list("failure_count", flat=True))


def seen(topic: str) -> Seen:
    return boxes(topic), payloads(topic)


def question(scene: Scene, payload: int = 0, *, group: str | None = None) -> PendingRequest:
    return PendingRequest(scene.topic, OutgoingMessage(payload, key="k", group=group), 60, None)


def asked(scene: Scene, *, group: str | None = None) -> Delivery:
    """Deliver a request to a new subscriber. Its requester never looks for the reply."""
    question(scene, group=group).send()
    (delivery,) = scene.subscriber().poll()
    return delivery


@walk(seen, Stage(((), ()), {}), Stage(((OPEN,), (0,)), {0: 1}))
def ask(scene: Scene) -> Iterator[None]:
    """The message and its reply box are committed together."""
    asking = question(scene)
    yield
    asking.send()


@walk(seen, Stage(((OPEN,), (0,)), {0: 2}), Stage(((ANSWERED,), (0,)), {0: 2}))
def reply(scene: Scene) -> Iterator[None]:
    """The message is delivered again, with or without the reply."""
    delivery = asked(scene)
    yield
    delivery.reply("answer")


def with_ack(topic: str) -> Seen:
    return boxes(topic), acked(topic)


@walk(with_ack, Stage(((OPEN,), (False,)), {0: 2}), Stage(((ANSWERED,), (True,)), {0: DONE}))
def reply_and_ack_in_one(scene: Scene) -> Iterator[None]:
    delivery = asked(scene)
    yield
    with delivery.atomic():
        delivery.reply("answer")


def with_letters(topic: str) -> Seen:
    return boxes(topic), letters(topic)


@walk(
    with_letters,
    Stage(((OPEN,), ()), {0: 2}, {}),
    Stage(((FAILED,), ((0, FIRST, 1),)), {0: Dead(1)}, {}),
)
def reject_a_request(scene: Scene) -> Iterator[None]:
    """The dead letter and the failure in the reply box are committed together."""
    delivery = asked(scene, group=FIRST)
    yield
    delivery.reject("never")


@walk(seen, Stage(((ANSWERED,), (0,)), {0: 2}), Stage(((), (0,)), {0: 2}))
def take_the_answer(scene: Scene) -> Iterator[None]:
    asking = question(scene)
    asking.send()
    scene.subscriber().poll()[0].reply("answer")
    yield
    assert asking.poll() is not None


@walk(seen, Stage(((OPEN,), (0,)), {0: 1}), Stage(((), (0,)), {0: 1}))
def abandon(scene: Scene) -> Iterator[None]:
    asking = question(scene)
    asking.send()
    yield
    asking.abandon()


@walk(seen, Stage(((OPEN, OPEN), (0, 1)), {0: 1, 1: 1}), Stage(((OPEN,), (0, 1)), {0: 1, 1: 1}))
def sweep(scene: Scene) -> Iterator[None]:
    """One of the two boxes is long past its time."""
    for payload in range(2):
        question(scene, payload).send()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE queue_messages SET available_at = available_at - %s WHERE topic = %s ORDER BY `offset` LIMIT 1",
            [60_000 + LINGER_MS, f"{scene.topic}_replies"],
        )
    leftovers = ExpiredReplies("default", scene.topic)
    yield
    leftovers.delete_page()


@walk(
    seen,
    Stage(((), ()), {}),
    Stage(((OPEN,), (0,)), {0: 1}),
    Stage(((ANSWERED,), (0,)), {0: 1}),
    Stage(((), (0,)), {0: 1}),
)
def request_that_is_answered(scene: Scene) -> Iterator[None]:
    """A mock fills the box between the first two looks. The walk ``reply`` covers the subscriber's side."""

    def fill(question: requesting.PendingRequest) -> None:
        assert Message.objects.filter(topic=f"{scene.topic}_replies").update(failure_count=ANSWERED) == 1

    yield
    with mock.patch.object(requesting.PendingRequest, "wait", fill):
        assert request(scene.topic, 0, key="k").payload is None
