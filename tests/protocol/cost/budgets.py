"""The cost budget of each public verb: its exact number of statements and commits.

A budget is one function that prepares and returns the call that is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from unittest import mock

from django.utils import timezone

from django_mqueue import (
    Delivery,
    OutgoingMessage,
    Subscription,
    cancel,
    pause,
    publish,
    publish_many,
    purge,
    redrive,
    release,
    request,
    reschedule,
    reset,
    resume,
    scheduled,
    subscribe,
    unsubscribe,
)
from django_mqueue.inspect import delay, erase, hold, redeliver, remove, send_to_front, unhold
from django_mqueue.service import requesting
from tests.support.subscribers import poll_until
from tests.support.transactions import Background

Call = Callable[[], object]
HOUR = 3600


class Scene:
    """One topic, with subscriptions that stay open until the call has been counted."""

    topic, group = "t", "g"

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        publish("before", 0)  # The log's first offset saves its watermark a statement.

    def subscription(self) -> Subscription:
        return self._stack.enter_context(Subscription(self.topic, self.group, "w"))

    def delivery(self) -> Delivery:
        """Publish one message and return its delivery to a new subscription."""
        publish(self.topic, 1, key="k", id="one")
        (delivery,) = self.subscription().poll()
        return delivery

    def request(self) -> Delivery:
        """Send one request and return its delivery to a new subscription."""
        requesting.PendingRequest(self.topic, OutgoingMessage(1, key="k"), HOUR, None).send()
        (delivery,) = self.subscription().poll()
        return delivery

    def dead_letter(self) -> None:
        self.delivery().reject("never")

    def answer_in_the_pause(self) -> None:
        """Make `request` wait for one reply of another thread between its first two looks."""
        subscription = self.subscription()
        subscription.poll()  # The first poll is more expensive, and belongs to the preparation.

        def answer() -> None:
            (delivery,) = poll_until(subscription, 1)
            assert delivery.reply("answer")

        def pause(question: requesting.PendingRequest) -> None:
            with Background(answer) as answering:
                answering.result()

        self._stack.enter_context(mock.patch.object(requesting.PendingRequest, "wait", pause))


@dataclass(frozen=True)
class Budget:
    """The numbers of ``statements`` and ``commits`` of the call that ``prepare`` returns."""

    statements: int
    commits: int
    prepare: Callable[[Scene], Call]


BUDGETS: dict[str, Budget] = {}


def budget(verb: str, statements: int, commits: int) -> Callable[[Callable[[Scene], Call]], None]:
    """Register a function as the budget of a verb."""

    def register(prepare: Callable[[Scene], Call]) -> None:
        assert verb not in BUDGETS, verb
        BUDGETS[verb] = Budget(statements, commits, prepare)

    return register


@budget("publish", statements=1, commits=0)
def _(scene: Scene) -> Call:
    return lambda: publish(scene.topic, 1, key="k", id="one")


@budget("publish_many", statements=1, commits=1)
def _(scene: Scene) -> Call:
    return lambda: publish_many(scene.topic, range(500))


@budget("subscribe", statements=15, commits=1)
def _(scene: Scene) -> Call:
    return lambda: subscribe(scene.topic, scene.group)


@budget("unsubscribe", statements=18, commits=1)
def _(scene: Scene) -> Call:
    scene.delivery().ack()
    return lambda: unsubscribe(scene.topic, scene.group)


@budget("pause", statements=4, commits=1)
def _(scene: Scene) -> Call:
    subscribe(scene.topic, scene.group)
    return lambda: pause(scene.topic, scene.group)


@budget("resume", statements=4, commits=1)
def _(scene: Scene) -> Call:
    subscribe(scene.topic, scene.group)
    pause(scene.topic, scene.group)
    return lambda: resume(scene.topic, scene.group)


@budget("reset", statements=22, commits=3)
def _(scene: Scene) -> Call:
    subscribe(scene.topic, scene.group)
    publish(scene.topic, 1, key="k")
    return lambda: reset(scene.topic, scene.group, "latest")


@budget("release", statements=5, commits=1)
def _(scene: Scene) -> Call:
    scene.delivery()
    return lambda: release(scene.topic, scene.group, subscriber="w")


@budget("redrive", statements=12, commits=1)
def _(scene: Scene) -> Call:
    scene.dead_letter()
    return lambda: redrive(scene.topic, ids=["one"])


@budget("purge", statements=9, commits=1)
def _(scene: Scene) -> Call:
    scene.dead_letter()
    return lambda: purge(scene.topic, ids=["one"])


@budget("scheduled", statements=1, commits=0)
def _(scene: Scene) -> Call:
    publish_many(scene.topic, [OutgoingMessage(n, delay=HOUR) for n in range(100)])
    return lambda: list(scheduled(scene.topic))


@budget("cancel", statements=1, commits=0)
def _(scene: Scene) -> Call:
    publish(scene.topic, 1, id="one", delay=HOUR)
    return lambda: cancel(scene.topic, "one")


@budget("reschedule", statements=1, commits=0)
def _(scene: Scene) -> Call:
    publish(scene.topic, 1, id="one", delay=HOUR)
    return lambda: reschedule(scene.topic, "one", delay=0)


@budget("request", statements=6, commits=2)
def _(scene: Scene) -> Call:
    """One look finds nothing; the next finds the reply. A process's first request also removes old replies."""
    scene.answer_in_the_pause()
    requesting._delete_expired_boxes("default", scene.topic)
    return lambda: request(scene.topic, 1, key="k")


@budget("inspect.remove", statements=12, commits=1)
def _(scene: Scene) -> Call:
    subscribe(scene.topic, scene.group)
    publish(scene.topic, 1, key="k", id="one")
    return lambda: remove(scene.topic, group=scene.group, key="k", id="one", status="pending")


@budget("inspect.send_to_front", statements=14, commits=1)
def _(scene: Scene) -> Call:
    subscribe(scene.topic, scene.group)
    publish(scene.topic, 1, key="k", id="one")
    return lambda: send_to_front(scene.topic, group=scene.group, key="k", id="one", status="pending")


@budget("inspect.delay", statements=14, commits=1)
def _(scene: Scene) -> Call:
    subscribe(scene.topic, scene.group)
    publish(scene.topic, 1, key="k", id="one")
    tomorrow = timezone.now() + timedelta(days=1)
    return lambda: delay(scene.topic, tomorrow, group=scene.group, key="k", id="one", status="pending")


@budget("inspect.hold", statements=14, commits=1)
def _(scene: Scene) -> Call:
    subscribe(scene.topic, scene.group)
    publish(scene.topic, 1, key="k", id="one")
    return lambda: hold(scene.topic, group=scene.group, key="k", id="one", status="pending")


@budget("inspect.unhold", statements=10, commits=1)
def _(scene: Scene) -> Call:
    subscribe(scene.topic, scene.group)
    publish(scene.topic, 1, key="k", id="one")
    hold(scene.topic, group=scene.group)
    return lambda: unhold(scene.topic, group=scene.group, key="k", id="one", status="waiting")


@budget("inspect.redeliver", statements=11, commits=1)
def _(scene: Scene) -> Call:
    scene.delivery().ack()
    return lambda: redeliver(scene.topic, group=scene.group, key="k", id="one")


@budget("inspect.erase", statements=16, commits=1)
def _(scene: Scene) -> Call:
    scene.delivery()
    return lambda: erase(topic=scene.topic, key="k")


@budget("Subscription.open", statements=23, commits=3)
def _(scene: Scene) -> Call:
    return Subscription(scene.topic, scene.group, "w").open


@budget("Subscription.poll", statements=26, commits=4)
def _(scene: Scene) -> Call:
    """The first poll: it takes the leases, reads the log and claims one message."""
    publish(scene.topic, 1, key="k")
    return scene.subscription().poll


@budget("Subscription.close", statements=6, commits=1)
def _(scene: Scene) -> Call:
    subscription = scene.subscription()
    return subscription.close


@budget("Subscription.ack", statements=1, commits=1)
def _(scene: Scene) -> Call:
    publish_many(scene.topic, range(100))
    subscription = scene.subscription()
    deliveries = subscription.poll()
    assert len(deliveries) == 100
    return lambda: subscription.ack(deliveries)


@budget("Delivery.ack", statements=1, commits=1)
def _(scene: Scene) -> Call:
    return scene.delivery().ack


@budget("Delivery.nack", statements=1, commits=1)
def _(scene: Scene) -> Call:
    return scene.delivery().nack


@budget("Delivery.postpone", statements=1, commits=1)
def _(scene: Scene) -> Call:
    return scene.delivery().postpone


@budget("Delivery.reject", statements=3, commits=1)
def _(scene: Scene) -> Call:
    return scene.delivery().reject


@budget("Delivery.extend", statements=1, commits=1)
def _(scene: Scene) -> Call:
    delivery = scene.delivery()
    return lambda: delivery.extend(60)


@budget("Delivery.reply", statements=2, commits=1)
def _(scene: Scene) -> Call:
    delivery = scene.request()
    return lambda: delivery.reply("answer")


@budget("Delivery.atomic", statements=4, commits=1)
def _(scene: Scene) -> Call:
    delivery = scene.delivery()

    def block() -> None:
        with delivery.atomic():
            publish("effects", 1)

    return block
