"""Deadlocks and lock wait timeouts in handlers roll back what an atomic handler wrote, and use no attempt."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import patch

import pytest
from django.db import OperationalError, connection, transaction

from django_mqueue import BatchFailure, Delivery, publish
from django_mqueue.models import Message
from django_mqueue.protocol.subscriber import Subscriber
from django_mqueue.workers.handler_calls import UNCOUNTED_WAIT
from tests.features.batch.batches import states
from tests.support.running import registered, run
from tests.support.shop.models import Door, Sale
from tests.support.steps import sold
from tests.support.threads import raw_connection
from tests.support.transactions import PATIENCE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]

DEADLOCK, LOCK_WAIT_TIMEOUT = 1213, 1205
ATOMIC: dict[str, dict[str, Any]] = {"one": {}, "batch": {"batch": True}}


def wait_for_a_lock_in_vain() -> None:
    """Update a row that another connection has locked, until the lock wait timeout."""
    with raw_connection() as other:
        other.execute("SELECT * FROM shop_door WHERE name = 'locked' FOR UPDATE")
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
            cursor.execute("UPDATE shop_door SET name = 'mine' WHERE name = 'locked'")


class HotRow:
    """A handler that reads one row with a shared lock, updates it, and creates a sale for each message.

    The first two calls read before either of them updates. Each waits for the other, and one of them is a deadlock's
    victim.
    """

    def __init__(self) -> None:
        Door.objects.create(name="hot")
        self.calls: list[tuple[Any, int]] = []
        self.errors: list[int] = []
        self._both = threading.Barrier(2, timeout=PATIENCE)

    def __call__(self, given: Any) -> None:
        (message,) = given if isinstance(given, list) else [given]
        self.calls.append((message.payload, message.attempt))
        Sale.objects.create(number=message.payload)
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM shop_door WHERE name = 'hot' LOCK IN SHARE MODE")
            if len(self.errors) == 0:
                self._both.wait()
            try:
                cursor.execute("UPDATE shop_door SET id = id + 100 WHERE name = 'hot'")
            except OperationalError as error:
                self.errors.append(error.args[0])
                raise


@pytest.mark.parametrize("kind", ATOMIC)
def test_a_deadlock_of_two_atomic_handlers_uses_no_attempt(kind: str) -> None:
    publish("t", 1, key="a")
    publish("t", 2, key="b")
    with registered("t", handler := HotRow(), atomic=True, retry=None, **ATOMIC[kind]):
        run(drain=False, threads=2, max_messages=3)
    assert handler.errors == [DEADLOCK]
    assert len(handler.calls) == 3
    assert set(handler.calls) == {(1, 1), (2, 1)}
    assert sold() == [1, 2]
    assert states() == [(True, 0, 0)] * 2


@pytest.mark.parametrize("kind", ATOMIC)
def test_a_lock_wait_timeout_of_an_atomic_handler_uses_no_attempt(kind: str) -> None:
    """The server rolls back one statement. The worker rolls back the whole transaction, including the earlier sale."""
    Door.objects.create(name="locked")
    publish("t", 1, key="a")
    calls: list[int] = []

    def handle(given: Any) -> None:
        (message,) = given if isinstance(given, list) else [given]
        calls.append(message.attempt)
        Sale.objects.create(number=1)
        if len(calls) == 1:
            wait_for_a_lock_in_vain()

    with registered("t", handle, atomic=True, retry=None, **ATOMIC[kind]):
        run(drain=False, threads=1, max_messages=2)
    assert (calls, sold(), states()) == ([1, 1], [1], [(True, 0, 0)])


def test_a_lock_wait_timeout_of_another_handler_uses_an_attempt() -> None:
    """The sale from before the timeout stays."""
    Door.objects.create(name="locked")
    publish("t", 1, key="a")
    calls: list[int] = []

    def handle(message: Delivery) -> None:
        calls.append(message.attempt)
        Sale.objects.create(number=1)
        if len(calls) == 1:
            with transaction.atomic():
                wait_for_a_lock_in_vain()

    with registered("t", handle, retry=[0]):
        run(drain=False, threads=1, max_messages=2)
    assert (calls, sold(), states()) == ([1, 2], [1, 1], [(True, 1, 1)])


def test_a_message_whose_handler_always_meets_a_deadlock_is_dead_lettered() -> None:
    """The worker does not count the first two attempts, and counts all later ones.

    It handles a message of another key meanwhile.
    """
    publish("t", 1, key="a")
    publish("t", 2, key="b")
    calls: list[int] = []

    def handle(message: Delivery) -> None:
        Sale.objects.create(number=message.payload)
        if message.payload == 1:
            calls.append(message.attempt)
            raise OperationalError(DEADLOCK, "Deadlock found when trying to get lock")

    with (
        patch("django_mqueue.workers.handler_calls.UNCOUNTED_MOST", 2),
        registered("t", handle, atomic=True, retry=[0], max_attempts=2),
    ):
        run(drain=False, threads=1, max_messages=5)
    assert calls == [1, 1, 1, 2]
    assert sold() == [2]
    letter = Message.objects.get(topic="t_dlq")
    assert (bytes(letter.payload), letter.failure_count) == (b"1", 2)
    assert (letter.last_error or "").startswith("django.db.utils.OperationalError: (1213")


def test_attempts_that_are_not_counted_stay_known_when_the_partition_is_read_again() -> None:
    """The worker reads the partition again before each round, as after an outage.

    The limit for uncounted attempts still applies.
    """
    publish("t", 1, key="a")
    calls: list[int] = []
    tick, loaded = Subscriber.tick, 0

    def handle(message: Delivery) -> None:
        calls.append(message.attempt)
        raise OperationalError(DEADLOCK, "Deadlock found when trying to get lock")

    def read_again_and_tick(engine: Subscriber) -> None:
        nonlocal loaded
        loaded += bool(calls) and bool(engine.state.partitions)
        engine.membership.reload()
        tick(engine)

    with (
        patch("django_mqueue.workers.handler_calls.UNCOUNTED_MOST", 2),
        patch.object(Subscriber, "tick", read_again_and_tick),
        registered("t", handle, atomic=True, retry=[0], max_attempts=2),
    ):
        run(drain=False, threads=1, max_messages=4)
    assert loaded
    assert calls == [1, 1, 1, 2]
    assert Message.objects.get(topic="t_dlq").failure_count == 2


def test_a_batch_that_names_a_message_for_a_deadlock_is_delivered_again() -> None:
    """The worker rolls back the whole batch, so no message uses an attempt."""
    for number in range(3):
        publish("t", number, key="a")
    calls: list[list[tuple[int, int]]] = []

    def handle(messages: list[Delivery]) -> None:
        calls.append([(message.payload, message.attempt) for message in messages])
        Sale.objects.bulk_create([Sale(number=message.payload) for message in messages])
        if len(calls) == 1:
            raise BatchFailure(
                {messages[1]: OperationalError(LOCK_WAIT_TIMEOUT, "Lock wait timeout exceeded")}
            )

    with registered("t", handle, atomic=True, batch=True, retry=None):
        run(drain=False, threads=1, max_messages=6)
    assert sorted(one for call in calls[1:] for one in call) == [(0, 1), (1, 1), (2, 1)]
    assert (sold(), states()) == ([0, 1, 2], [(True, 0, 0)] * 3)


def test_the_wait_after_a_deadlock_grows_and_varies() -> None:
    """Handlers that met in a deadlock retry at different moments."""
    for times, most in [(1, 0.05), (2, 0.1), (5, 0.8), (10, 10), (1000, 10)]:
        waits = {UNCOUNTED_WAIT(times) for _ in range(100)}
        assert len(waits) > 1
        assert most / 2 <= min(waits) <= max(waits) <= most
