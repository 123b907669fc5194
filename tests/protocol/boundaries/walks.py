"""Walks: an operation, its preparation, the states that a death may leave, and the outcome that must follow.

A walk is one function that prepares, yields once, and then operates. The process can die at each statement after the
``yield``. To walk a new verb, add such a function to one of the ``walks_…`` modules.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

from django.db import connection

from django_mqueue import Delivery, Subscription, publish_many, subscribe
from django_mqueue.messages import OutgoingMessage
from django_mqueue.protocol.subscriber import Subscriber
from tests.support.subscribers import engine_of, settle

FIRST, SECOND = "first", "second"
"""The two groups of every topic. A walk operates on the first group. The second group lags behind."""

WALKER = "walker"
"""The subscriber name of the process that dies."""


@dataclass(frozen=True)
class Dead:
    """A message that the group gave up: it has one dead letter with this number of failures."""

    failures: int


DONE = 0
Fate = int | Dead
"""The outcome of a message in a group after other workers have taken over. A number is the attempt that is delivered.
``DONE`` means that the message is never delivered again. ``Dead`` means that it is a dead letter."""


@dataclass(frozen=True)
class Stage:
    """A state that a death may leave, and the outcome that each group must then have.

    ``sees`` is the value that the walk's look must return. ``first``, ``second`` and ``others`` give the fate of each
    message in each group. If ``second`` is None, that group never received a message, and it gets each one as a first
    attempt. If ``first`` is None, that group is no longer registered.

    ``paused`` names the groups that get nothing until they are resumed. ``reads`` names the groups that read the log
    by themselves, with the payloads that each still has to read.
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
    """The options with which a walk's subscriber joins."""

    group: str
    name: str
    max_attempts: int
    strict: bool


class Scene:
    """The setting of a walk, in the process that will die: a topic of its own with both groups registered.

    ``heard`` holds (payload, attempt) of each message that a handler received. The last words report it to the test.
    """

    def __init__(self, topic: str, heard: list[tuple[int, int]]) -> None:
        self.topic, self.heard = topic, heard
        self.subscriptions: list[Subscription] = []
        for group in (FIRST, SECOND):
            subscribe(topic, group)

    @property
    def subscription(self) -> Subscription:
        """The subscription that joined last."""
        return self.subscriptions[-1]

    @property
    def engine(self) -> Subscriber:
        return engine_of(self.subscription)

    @property
    def engines(self) -> list[Subscriber]:
        return [engine_of(subscription) for subscription in self.subscriptions]

    def publish(self, *payloads: int, key: str = "k") -> None:
        publish_many(self.topic, [OutgoingMessage(payload, key=key) for payload in payloads])

    def subscriber(self, **options: Unpack[Options]) -> Subscription:
        """Return a new subscription that has no leases yet. By default it is the walker in the first group."""
        options = {"group": FIRST, "name": WALKER, **options}
        subscription = Subscription(self.topic, **options).open()
        self.subscriptions.append(subscription)
        return subscription

    def claimed(self, *payloads: int, **options: Unpack[Options]) -> list[Delivery]:
        """Publish these messages and return their deliveries to a new subscriber."""
        self.publish(*payloads)
        found = self.subscriber(**options).poll()
        assert [delivery.payload for delivery in found] == list(payloads)
        return found

    def done(self, *payloads: int) -> None:
        """Publish these messages, ack them in both groups, and move both watermarks. The walker joins last."""
        self.publish(*payloads)
        for group in (SECOND, FIRST):
            subscription = self.subscriber(group=group)
            subscription.ack(subscription.poll())
            settle(subscription)

    def run_out(self) -> None:
        """Let all leases and heartbeats of the topic expire."""
        expire(self.topic)

    def be_idle(self) -> None:
        """Make all partitions idle for longer than any lease."""
        for engine in self.engines:
            make_idle(engine)


def make_idle(engine: Subscriber) -> None:
    for partition in engine.state.partitions.values():
        partition.idle_since = float("-inf")


Operation = Callable[[Scene], Iterator[None]]
Look = Callable[[str], Hashable]


@dataclass(frozen=True)
class Walk:
    """An operation and its stages.

    ``look`` shows after a death how far the operation came. It must show all ``stages`` in their order. An operation
    without stages has a test of its own. ``again`` is the call that a user repeats after the death. It ends in the
    last stage.
    """

    name: str
    operation: Operation
    look: Look
    stages: tuple[Stage, ...]
    again: Callable[[str], object] | None

    def begin(self, scene: Scene) -> Callable[[], None]:
        """Prepare the walk and return the operation itself."""
        steps = self.operation(scene)
        next(steps)

        def operate() -> None:
            assert next(steps, "the end") == "the end", f"{self.name} yields once"

        return operate


WALKS: dict[str, Walk] = {}


def walk(
    look: Look, *stages: Stage, again: Callable[[str], object] | None = None
) -> Callable[[Operation], Operation]:
    """Register the decorated function as a walk with the function's name."""

    def register(operation: Operation) -> Operation:
        name = operation.__name__
        assert name not in WALKS, name
        WALKS[name] = Walk(name, operation, look, stages, again)
        return operation

    return register


def expire(topic: str, *, but: str = "") -> None:
    """Move the leases and heartbeats of the topic into the past, except for the subscriber ``but``."""
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
