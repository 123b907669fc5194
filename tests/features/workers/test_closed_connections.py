"""The server closes idle connections of handlers, and connections of running atomic handlers. No attempt is used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from django.db import InterfaceError, connections, transaction

from django_mqueue import Delivery, publish
from django_mqueue.models import DeliveryState, Message
from django_mqueue.protocol.tailer import Tailer
from tests.features.batch.batches import states
from tests.support.running import Seen, registered, run
from tests.support.shop.models import Sale
from tests.support.threads import Background, raw_connection
from tests.support.transactions import PATIENCE, wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("fast"),
]

THREADS = 3
ALIASES = ("default", "other")
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "atomic": {"atomic": True},
    "batch": {"batch": True},
    "atomic batch": {"batch": True, "atomic": True},
}


def server_id(alias: str) -> int:
    """Return the server's id for this thread's connection."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        return int(cursor.fetchone()[0])


def kill(ids: set[int]) -> None:
    with raw_connection() as killer:
        for number in ids:
            killer.execute(f"KILL {number:d}")


def wait_for_the_idle_timeout(ids: set[int]) -> None:
    """Do nothing: the handlers have called ``set_idle_timeout``."""


def set_idle_timeout(alias: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("SET SESSION wait_timeout = 2")


def open_ids() -> set[int]:
    with raw_connection() as other:
        return {int(row[0]) for row in other.execute("SHOW PROCESSLIST")}


@pytest.mark.parametrize("close", [kill, wait_for_the_idle_timeout])
@pytest.mark.parametrize("kind", KINDS)
def test_closed_idle_connections_use_no_attempt(kind: str, close: Callable[[set[int]], None]) -> None:
    """Each thread has a closed connection to each database. It handles its next message once, on new connections."""
    ids: set[int] = set()
    calls: list[tuple[Any, int]] = []
    together = threading.Barrier(THREADS, timeout=PATIENCE)

    def handle(given: Any) -> None:
        (message,) = given if isinstance(given, list) else [given]
        calls.append((message.payload, message.attempt))
        for alias in ALIASES:
            number = server_id(alias)
            if message.payload == "first":
                ids.add(number)
        if message.payload == "first":
            together.wait()
            if close is wait_for_the_idle_timeout:
                for alias in ALIASES:  # An atomic handler needs its connection until the commit.
                    transaction.on_commit(partial(set_idle_timeout, alias), using=alias)

    for n in range(THREADS):
        publish("t", "first", key=f"k{n}")
    with registered("t", handle, **KINDS[kind]):
        worker = Background(
            lambda: run(drain=False, threads=THREADS, max_messages=2 * THREADS, max_seconds=120)
        ).start()
        wait_until(
            lambda: DeliveryState.objects.filter(acked=True).count() == THREADS, "all have connections"
        )
        assert len(ids) == THREADS * len(ALIASES)
        close(ids)
        wait_until(lambda: not ids & open_ids(), "the server has closed them")
        for n in range(THREADS):
            publish("t", "second", key=f"k{n}")
        worker.result()
    assert sorted(calls) == [("first", 1)] * THREADS + [("second", 1)] * THREADS
    assert states() == [(True, 0, 0)] * 2 * THREADS


def sell_and_die(given: Any, times: int, calls: list[int]) -> None:
    """Write, and let the server close the connection in the first ``times`` calls."""
    (message,) = given if isinstance(given, list) else [given]
    calls.append(message.attempt)
    Sale.objects.create(number=message.payload)
    if len(calls) <= times:
        kill({server_id("default")})
        Sale.objects.create(number=-1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_closed_while_the_handler_runs(kind: str) -> None:
    """An atomic handler uses no attempt: its writes are rolled back. Others use one, and their first write stays."""
    calls: list[int] = []
    publish("t", 7, key="k")
    with registered("t", lambda given: sell_and_die(given, 1, calls), retry=[0], **KINDS[kind]):
        run(drain=False, max_messages=2, threads=1)
    sold = sorted(Sale.objects.values_list("number", flat=True))
    if "atomic" in kind:
        assert (calls, sold, states()) == ([1, 1], [7], [(True, 0, 0)])
    else:
        assert (calls, sold, states()) == ([1, 2], [7, 7], [(True, 1, 1)])


def test_a_message_whose_connection_is_always_closed_is_dead_lettered() -> None:
    """A statement that is too long causes this. The worker does not count three attempts, and then counts all."""
    calls: list[int] = []
    publish("t", 7, key="k")
    publish("t", 8, key="other")

    def handle(message: Delivery) -> None:
        if message.payload == 7:
            sell_and_die(message, 100, calls)

    with (
        patch("django_mqueue.workers.handler_calls.UNCOUNTED_MOST", 3),
        registered("t", handle, atomic=True, retry=[0], max_attempts=2),
    ):
        run(drain=False, max_messages=6, threads=1)
    assert calls == [1, 1, 1, 1, 2]
    assert not Sale.objects.exists()
    letter = Message.objects.get(topic="t_dlq")
    assert (bytes(letter.payload), letter.failure_count) == (b"7", 2)


def test_the_loop_opens_a_new_connection_after_an_interface_error() -> None:
    """The driver raises it if a call fails without an error number."""
    errors = [InterfaceError(0, "")]
    read = Tailer.tick

    def fail_once(tailer: Tailer, *, woken: bool = False) -> bool:
        if errors:
            raise errors.pop()
        return read(tailer, woken=woken)

    publish("t", 7)
    with registered("t", seen := Seen()), patch.object(Tailer, "tick", fail_once):
        run()
    assert (seen.payloads, errors) == ([7], [])
