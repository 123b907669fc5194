"""What a walk is: an operation with its preparation, what can be seen of it after a death, and what must follow.

A walk is one function that prepares, yields once, and operates: each statement after the ``yield`` is a place to
die. A new verb of the queue is walked by adding such a function to one of the ``walks_…`` modules.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

from django.db import connection

from django_mqueue import Delivery, Subscription, publish_many, subscribe
from django_mqueue.messages import OutgoingMessage
from django_mqueue.service.engine import Engine
from tests.support.subscribers import engine_of, settle

FIRST, SECOND = "first", "second"
"""The two groups of every topic. What is walked happens to the first; the second lags behind."""

WALKER = "walker"
"""The name under which the process that dies has joined its group."""


@dataclass(frozen=True)
class Dead:
    """Given up by the group: one dead letter, which says so many failures."""

    failures: int


DONE = 0
Fate = int | Dead
"""What a message comes to in a group once others have taken over: it is delivered with this attempt's number, it is
``DONE`` and never seen again, or it is ``Dead``."""


@dataclass(frozen=True)
class Stage:
    """One of the states in which a death may leave things, and what each group must meet afterwards.

    ``sees`` is what the walk's look must have found. ``fates`` says for each group what its messages come to; where
    the second is not named, nobody ever gave it anything and each message comes for the first time. Without
    ``first`` that group is gone. ``paused``: groups that get nothing until they are resumed, and then what their fates
    say. ``reads``: groups that read the log by themselves, and what each has yet to read.
    """

    sees: Hashable
    first: Mapping[int, Fate] | None
    second: Mapping[int, Fate] | None = None
    others: Mapping[str, Mapping[int, Fate]] = field(default_factory=dict)
    paused: tuple[str, ...] = ()
    reads: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def fates(self) -> dict[str, Mapping[int, Fate]]:
        first = {} if self.first is None else {FIRST: self.first}
        second = dict.fromkeys(self.first or {}, 1) if self.second is None else self.second
        return {**first, SECOND: second, **self.others}


class Options(TypedDict, total=False):
    """How a walk's subscriber joins."""

    group: str
    name: str
    max_attempts: int
    strict: bool


class Scene:
    """Where a walk plays, in the process that will die: a topic of its own, with both groups registered.

    ``heard``: (payload, attempt) of what handlers were given, told to the test with the last words.
    """

    def __init__(self, topic: str, heard: list[tuple[int, int]]) -> None:
        self.topic, self.heard = topic, heard
        self.subscriptions: list[Subscription] = []
        for group in (FIRST, SECOND):
            subscribe(topic, group)

    @property
    def subscription(self) -> Subscription:
        """The one that joined last."""
        return self.subscriptions[-1]

    @property
    def engine(self) -> Engine:
        return engine_of(self.subscription)

    @property
    def engines(self) -> list[Engine]:
        return [engine_of(subscription) for subscription in self.subscriptions]

    def publish(self, *payloads: int, key: str = "k") -> None:
        publish_many(self.topic, [OutgoingMessage(payload, key=key) for payload in payloads])

    def subscriber(self, **options: Unpack[Options]) -> Subscription:
        """One that has joined, and has no leases yet: the walker in the first group, unless told otherwise."""
        options = {"group": FIRST, "name": WALKER, **options}
        subscription = Subscription(self.topic, **options).open()
        self.subscriptions.append(subscription)
        return subscription

    def claimed(self, *payloads: int, **options: Unpack[Options]) -> list[Delivery]:
        """These messages, published, and delivered to a new subscriber's handler."""
        self.publish(*payloads)
        found = self.subscriber(**options).poll()
        assert [delivery.payload for delivery in found] == list(payloads)
        return found

    def done(self, *payloads: int) -> None:
        """These messages, published, and acked by both groups, whose watermarks say so; the walker is the last."""
        self.publish(*payloads)
        for group in (SECOND, FIRST):
            subscription = self.subscriber(group=group)
            subscription.ack(subscription.poll())
            settle(subscription)

    def run_out(self) -> None:
        """As if a lease's duration had passed without a sign from anybody."""
        expire(self.topic)

    def be_idle(self) -> None:
        """As if all partitions had been without work for longer than any lease."""
        for engine in self.engines:
            make_idle(engine)


def make_idle(engine: Engine) -> None:
    for partition in engine.context.partitions.values():
        partition.idle_since = float("-inf")


Operation = Callable[[Scene], Iterator[None]]
Look = Callable[[str], Hashable]


@dataclass(frozen=True)
class Walk:
    """``look`` sees, after a death, how far the operation came: ``stages`` in their order, none left out.
    Without stages it is an operation that a test of its own judges.

    ``again``: what the dead process's user would do then, ending in the last stage.
    """

    name: str
    operation: Operation
    look: Look
    stages: tuple[Stage, ...]
    again: Callable[[str], object] | None

    def begin(self, scene: Scene) -> Callable[[], None]:
        """Prepare; returns the operation itself."""
        steps = self.operation(scene)
        next(steps)

        def operate() -> None:
            assert next(steps, "the end") == "the end", f"{self.name} yields once"

        return operate


WALKS: dict[str, Walk] = {}


def walk(
    look: Look, *stages: Stage, again: Callable[[str], object] | None = None
) -> Callable[[Operation], Operation]:
    """Register a function as the walk of its name."""

    def register(operation: Operation) -> Operation:
        name = operation.__name__
        assert name not in WALKS, name
        WALKS[name] = Walk(name, operation, look, stages, again)
        return operation

    return register


def expire(topic: str, *, but: str = "") -> None:
    """Make it long ago that anybody of the topic gave a sign of life (``but`` one name)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE queue_partition_leases SET lease_renewed_at = lease_renewed_at - 10000000"
            " WHERE topic = %s AND leased_by <> %s",
            [topic, but],
        )
        cursor.execute(
            "UPDATE queue_subscriber_heartbeats SET heartbeat_at = heartbeat_at - 10000000"
            " WHERE topic = %s AND subscriber_name <> %s",
            [topic, but],
        )
