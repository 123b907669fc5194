"""A database error in a verb of the queue breaks the caller's transaction, as an error of Django's ORM does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import OperationalError, connection, transaction
from django.db.transaction import TransactionManagementError

from django_mqueue import (
    Delivery,
    NotRegistered,
    OutgoingMessage,
    Subscription,
    cancel,
    pause,
    publish,
    publish_many,
    purge,
    redrive,
    release,
    reschedule,
    reset,
    resume,
    subscribe,
    unsubscribe,
)
from django_mqueue.inspect import remove, send_to_front
from tests.support.subscribers import in_log, poll_until
from tests.support.threads import Background, RawConnection, raw_connection

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"
DEADLOCK = 1213
LOCKS = re.compile(r"\s*(INSERT|UPDATE|DELETE|REPLACE)\b|FOR UPDATE|LOCK IN SHARE MODE")

VERBS: dict[str, Callable[[Delivery], object]] = {
    "publish": lambda _: publish(TOPIC, 1, key="k"),
    "publish with an id": lambda _: publish(TOPIC, 1, key="k", id="mine"),
    "publish for a group": lambda _: publish(TOPIC, 1, key="k", group=GROUP),
    "publish later": lambda _: publish(TOPIC, 1, key="k", delay=60),
    "publish later with an id": lambda _: publish(TOPIC, 1, key="k", id="mine", delay=60),
    "replace": lambda _: publish(TOPIC, 1, key="k", id="later", delay=60, on_duplicate="replace"),
    "publish_many": lambda _: publish_many(TOPIC, [1, OutgoingMessage(2, key="k", id="mine", delay=60)]),
    "cancel": lambda _: cancel(TOPIC, "later", key="k"),
    "reschedule": lambda _: reschedule(TOPIC, "later", key="k", delay=60),
    "ack": lambda delivery: delivery.ack(),
    "nack": lambda delivery: delivery.nack(),
    "reject": lambda delivery: delivery.reject("no"),
    "postpone": lambda delivery: delivery.postpone(60),
    "pause": lambda _: pause(TOPIC, GROUP),
    "resume": lambda _: resume(TOPIC, "paused"),
    "subscribe": lambda _: subscribe(TOPIC, "new"),
    "subscribe latest": lambda _: subscribe(TOPIC, "new", "latest"),
    "unsubscribe": lambda _: unsubscribe(TOPIC, GROUP),
    "reset": lambda _: reset(TOPIC, GROUP, "latest", force=True),
    "release": lambda _: release(TOPIC, GROUP, partition="k"),
    "redrive": lambda _: redrive(TOPIC),
    "purge": lambda _: purge(TOPIC),
    "remove": lambda _: remove(TOPIC, group=GROUP),
    "send_to_front": lambda _: send_to_front(TOPIC, group=GROUP),
}


@pytest.fixture
def delivery() -> Iterator[Delivery]:
    """Yield a delivery. The topic also has a dead letter, a scheduled message, and a message that waits in the log."""
    subscribe(TOPIC, "paused")
    pause(TOPIC, "paused")
    publish(TOPIC, 0, key="k", id="later", delay=3600)
    with Subscription(TOPIC, GROUP) as subscription:
        publish(TOPIC, "dead", key="k")
        poll_until(subscription, 1)[0].reject("no")
        publish(TOPIC, "delivered", key="k")
        (delivered,) = poll_until(subscription, 1)
        publish(TOPIC, "pending", key="k")
        yield delivered


@contextmanager
def deadlock_at(number: int) -> Iterator[list[str]]:
    """Let the ``number``-th statement that takes locks fail with a deadlock, after the server's ROLLBACK."""
    seen: list[str] = []

    def fail(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if LOCKS.search(sql):
            seen.append(sql)
            if len(seen) == number:
                connection.connection.query("ROLLBACK")
                raise OperationalError(DEADLOCK, "Deadlock found when trying to get lock")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(fail):
        yield seen


@pytest.mark.parametrize("verb", VERBS)
def test_after_a_deadlock_the_callers_transaction_can_only_be_rolled_back(
    verb: str, delivery: Delivery
) -> None:
    """A deadlock happens at each statement that takes locks. The next query raises, and the block commits nothing."""
    before = in_log(TOPIC)
    number, met = 0, True
    while met:
        number += 1
        with transaction.atomic():
            publish(TOPIC, "earlier", key="k")
            with deadlock_at(number) as seen, suppress(OperationalError):
                VERBS[verb](delivery)
            met = len(seen) >= number
            if met:
                with pytest.raises(TransactionManagementError):
                    ContentType.objects.create(app_label="later", model="write")
            transaction.set_rollback(True)
        assert in_log(TOPIC) == before, seen
    assert number > 1, "the verb takes no locks"
    assert not ContentType.objects.filter(app_label="later").exists()


@pytest.mark.parametrize("verb", ["publish with an id", "cancel"])
def test_with_autocommit_turned_off_a_deadlock_breaks_the_transaction(verb: str, delivery: Delivery) -> None:
    """Further queries raise until the caller rolls back."""
    connection.set_autocommit(False)
    try:
        publish(TOPIC, "earlier", key="k")
        with deadlock_at(1), pytest.raises(OperationalError):
            VERBS[verb](delivery)
        with pytest.raises(TransactionManagementError):
            publish(TOPIC, "later", key="k")
        connection.rollback()
        publish(TOPIC, "after it", key="k")
        connection.commit()
    finally:
        connection.set_autocommit(True)
    assert len(in_log(TOPIC)) == 4


def test_a_publish_that_is_the_victim_of_a_deadlock_takes_the_earlier_ones_with_it() -> None:
    """A real deadlock: the caller swallows the error and continues. The block does not commit half of its work."""
    with raw_connection() as other, transaction.atomic():
        assert publish(TOPIC, "earlier", key="k", id="x").created
        # The other transaction changes more rows: the server rolls back the caller's.
        for number in range(50):
            _insert(other, f"ballast-{number}")
        _insert(other, "y")
        waiting = Background(lambda: _insert(other, "x"), connection_id=other.connection_id).start()
        try:
            assert waiting.is_blocked
            with pytest.raises(OperationalError) as caught:
                publish(TOPIC, "meets it", key="k", id="y")
        finally:
            waiting.result()
            other.rollback()
        assert caught.value.args[0] == DEADLOCK
        with pytest.raises(TransactionManagementError):
            publish(TOPIC, "later", key="k")
    assert in_log(TOPIC) == []


@pytest.mark.parametrize("options", [{}, {"id": "a", "delay": 60}, {"id": "a", "on_duplicate": "replace"}])
def test_an_unknown_group_leaves_the_callers_transaction_usable(options: dict[str, Any]) -> None:
    """The server refuses only the INSERT."""
    with transaction.atomic():
        publish(TOPIC, "earlier", key="k")
        with pytest.raises(NotRegistered):
            publish(TOPIC, 1, **{**options, "key": "k", "group": "nobody"})
        publish(TOPIC, "later", key="k")
    assert len(in_log(TOPIC)) == 2


def _insert(other: RawConnection, message_id: str) -> None:
    """Store a message as ``publish`` does, without the gate's lock."""
    other.execute(
        "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
        " created_at, published_at) VALUES (%s, 'k', %s, '', '1', '{}', 0, 0, 0)",
        [TOPIC, message_id],
    )
