"""The walk of a worker that calls its handler for one message after the other and settles each by the outcome."""

from __future__ import annotations

from collections.abc import Iterator

from django_mqueue import Message, consumer, publish
from django_mqueue.workers.completer import Completer
from django_mqueue.workers.executor import execute
from django_mqueue.workers.handler_calls import HandlerCall
from django_mqueue.workers.registry import handlers

from .looks import Seen, ended, payloads
from .walks import DONE, FIRST, Dead, Scene, Stage, walk

WELL, FAILS, ANOTHER_KIND, FILTERED = range(4)
EFFECT = 10


def done(topic: str) -> Seen:
    return ended(topic), payloads(topic)


ALL = (WELL, FAILS, ANOTHER_KIND, FILTERED)
HANDED = dict.fromkeys(ALL, 2)
UNREAD = dict.fromkeys((*ALL, EFFECT), 1)
AFTER_ITS_COMMIT = {**HANDED, WELL: DONE, EFFECT: 1}
GIVEN_UP = (ANOTHER_KIND, FIRST, 1)


@walk(
    done,
    Stage((((False, False, False, False), ()), ALL), HANDED),
    Stage(
        (
            (
                (
                    True,
                    False,
                    False,
                    False,
                ),
                (),
            ),
            (*ALL, EFFECT),
        ),
        AFTER_ITS_COMMIT,
        UNREAD,
    ),
    Stage(
        (((True, False, False, True), ()), (*ALL, EFFECT)),
        {**AFTER_ITS_COMMIT, FILTERED: DONE},
        UNREAD,
    ),
    Stage(
        (((True, False, True, True), (GIVEN_UP,)), (*ALL, EFFECT)),
        {**AFTER_ITS_COMMIT, FILTERED: DONE, ANOTHER_KIND: Dead(1)},
        UNREAD,
    ),
)
def atomic_handlers_of_a_worker(scene: Scene) -> Iterator[None]:
    """One handler succeeds, one fails after its publish, one message has an unknown kind, and one is filtered out.

    The effect is committed with the ack. The effect of the failed handler is never committed.
    """

    def handle(message: Message) -> None:
        publish(scene.topic, message.payload + EFFECT, key="k")
        if message.payload == FAILS:
            raise ValueError("as told")

    def wanted(message: Message) -> bool:
        return bool(message.payload != FILTERED)

    def number(payload: int) -> int:
        if payload == ANOTHER_KIND:
            raise ValueError("no such kind")
        return payload

    consumer(scene.topic, group=FIRST, atomic=True, filter=wanted, kinds={"": number}, retry=[0])(handle)
    (handler,) = handlers([f"{scene.topic}:{FIRST}"])
    found = scene.claimed(*ALL)
    answers = Completer({scene.engine: handler})
    yield
    for delivery in found:
        answers.unsettled += execute(HandlerCall(handler, [delivery]))
    answers.settle_and_start(
        {}, lambda engine, acks, starting, share: engine.acknowledger.ack(acks), lambda lot: None
    )
