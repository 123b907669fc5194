"""Acks of atomic handlers remove deliveries from a worker's memory, in their own threads, while its loop reads it."""

from __future__ import annotations

import threading
from collections.abc import ItemsView, Iterable, Iterator, ValuesView
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import pytest

from django_mqueue import Delivery, OutgoingMessage, publish, publish_many
from django_mqueue.models import DeliveryState
from django_mqueue.protocol.consumer_state import ConsumerState
from django_mqueue.protocol.subscriber import Subscriber
from tests.support.running import registered, run
from tests.support.threads import Background, raw_connection
from tests.support.transactions import PATIENCE, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]

BOTH = [OutgoingMessage(key, key=key) for key in ("a", "b")]


class WatchedLock:
    """A reentrant lock. ``waiting``: the threads that wait for it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.waiting: set[int] = set()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.waiting.add(threading.get_ident())
            self._lock.acquire()
            self.waiting.remove(threading.get_ident())

    def __exit__(self, *error: object) -> None:
        self._lock.release()


@dataclass
class Steps:
    """Both handlers start. The first ends and acks while the loop reads the deliveries. Then the second ends."""

    started: set[str] = field(default_factory=set)
    first: threading.Event = field(default_factory=threading.Event)
    second: threading.Event = field(default_factory=threading.Event)
    looking: bool = False
    """True while the loop makes the read that the test is about."""
    lock: WatchedLock = field(default_factory=WatchedLock)
    """The lock of the deliveries."""
    first_thread: int = 0
    """The thread that handles and acks the first message."""

    def handle(self, message: Delivery) -> None:
        if message.payload == "a":
            self.first_thread = threading.get_ident()
        self.started.add(message.payload)
        (self.first if message.payload == "a" else self.second).wait(PATIENCE)

    def in_the_midst(self, flying: Flying) -> None:
        """Let the first handler end. Its ack waits here if the loop has locked the deliveries that it reads."""
        if self.looking and len(self.started) == 2 and not self.second.is_set():
            self.first.set()
            wait_until(
                lambda: len(flying) < 2 or self.first_thread in self.lock.waiting,
                "the ack has removed its delivery, or waits for the lock",
            )
            self.second.set()


class Flying(dict[int, Delivery]):
    """A worker's deliveries. A loop over all of them pauses after the first one."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def values(self) -> ValuesView[Delivery]:  # type: ignore[override]
        return cast(ValuesView[Delivery], self._slowly(super().values()))

    def items(self) -> ItemsView[int, Delivery]:  # type: ignore[override]
        return cast(ItemsView[int, Delivery], self._slowly(super().items()))

    def _slowly(self, found: Iterable[Any]) -> Iterator[Any]:
        for number, one in enumerate(found):
            if number == 1:
                self._steps.in_the_midst(self)
            yield one


def run_with(steps: Steps, **options: Any) -> None:
    state = partial(ConsumerState, in_flight=Flying(steps), lock=cast(Any, steps.lock))
    with patch("django_mqueue.protocol.subscriber.ConsumerState", state):
        run(threads=3, **options)
    assert steps.first.is_set(), "the loop has looked at both"


def test_an_ack_while_the_loop_asks_who_runs_alone() -> None:
    """A third message makes the loop claim while both handlers run."""
    steps = Steps()
    publish_many("orders", BOTH)
    alone = Subscriber.quarantined_delivery

    def look(engine: Subscriber) -> Delivery | None:
        steps.looking = True
        try:
            return alone(engine)
        finally:
            steps.looking = False

    def handle(message: Delivery) -> None:
        if message.payload == "b":
            wait_until(lambda: "a" in steps.started, "the other one has started")
            steps.started.add("b")
            Background(lambda: publish("orders", "c", key="c")).start().result()
        if message.payload != "c":
            steps.handle(message)

    with registered("orders", handle, atomic=True), patch.object(Subscriber, "quarantined_delivery", look):
        run_with(steps)
    assert list(DeliveryState.objects.values_list("acked", "retry_count")) == [(True, 0)] * 3


def test_an_ack_while_the_loop_winds_up_and_forgets_what_it_has_lost() -> None:
    """Another subscriber takes b's lease. The loop notices it while the last handlers run, and a's ack arrives."""
    steps = Steps()
    publish_many("orders", BOTH)
    drop = ConsumerState.drop

    def look(state: ConsumerState, names: Iterable[str]) -> set[str]:
        names = set(names)
        steps.looking = "b" in names
        try:
            return drop(state, names)
        finally:
            steps.looking = False

    def handle(message: Delivery) -> None:
        if message.payload == "b":
            wait_until(lambda: "a" in steps.started, "the other one has started")
            steps.started.add("b")
            with raw_connection() as other:
                other.execute("UPDATE queue_partition_leases SET holder = 'x' WHERE partition_key = 'b'")
                other.commit()
        steps.handle(message)

    with registered("orders", handle, atomic=True), patch.object(ConsumerState, "drop", look):
        run_with(steps, max_messages=2)
    assert dict(DeliveryState.objects.values_list("partition_key", "acked")) == {"a": True, "b": False}
