"""What a message costs in a worker: statements and commits of the worker's loop and of its handlers."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from django.db import connection
from django.db.backends.mysql.base import DatabaseWrapper
from django.test.utils import CaptureQueriesContext

from django_mqueue import OutgoingMessage, Subscription, publish_many
from django_mqueue.workers import pool
from django_mqueue.workers.handler_calls import HandlerCall
from django_mqueue.workers.pool import HandlerPool
from django_mqueue.workers.sharing import Sharing
from tests.support.fixtures import with_settings
from tests.support.running import Seen, registered, run
from tests.support.statements import CALM
from tests.support.subscribers import engine_of, poll_until
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)


calm = with_settings(MQUEUE=CALM)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report 1 ms for each call, however busy the machine is, and take no lot back. So a lot has 50 messages."""

    def end(sharing: Sharing, call: HandlerCall) -> None:
        sharing._turns.ended(sharing.subscriber_of(call.deliveries[0]), 0.001)

    monkeypatch.setattr(Sharing, "ended", end)
    monkeypatch.setattr(pool, "SLOW", PATIENCE)
    monkeypatch.setattr(pool, "LOT_VALID", PATIENCE)


def drained(count: int, keys: int = 1, threads: int = 4, **options: Any) -> Counter[str]:
    """Run a worker for ``count`` messages over ``keys`` keys. Count the transactions of its loop by what they do."""
    publish_many("t", [OutgoingMessage(n, key=f"k{n % keys}") for n in range(count)])
    with registered("t", seen := Seen(), **options), CaptureQueriesContext(connection) as captured:
        run(drain=False, threads=threads, max_messages=count, max_seconds=60)
    assert len(seen.messages) == count
    kinds = Counter[str]()
    texts = "\n".join(query["sql"] for query in captured.captured_queries)
    for transaction in texts.split("\nCOMMIT"):
        acks, claims = "SET s.acked = 1" in transaction, "INSERT INTO queue_delivery_state" in transaction
        kinds["ack" * acks + " and " * (acks and claims) + "claim" * claims] += 1
    return kinds


def test_a_strict_key_needs_one_transaction_for_each_message() -> None:
    """The transaction that acknowledges a message claims the next one of its key."""
    kinds = drained(40, strict=True)
    assert (kinds["claim"], kinds["ack and claim"], kinds["ack"]) == (1, 39, 1)


def test_a_slow_handler_on_one_thread_needs_one_transaction_for_each_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("django_mqueue.workers.turns.LOT_MAX", 1)
    kinds = drained(40, 1, 1)
    assert (kinds["claim"], kinds["ack and claim"], kinds["ack"]) == (1, 39, 1)


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("keys", [1, 100])
def test_quick_messages_share_transactions(keys: int) -> None:
    """A thread gets a lot of 50 messages. One transaction serves several lots."""
    kinds = drained(2000, keys)
    assert kinds["claim"] + kinds["ack and claim"] + kinds["ack"] <= 2000 // 10


def test_the_loop_acknowledges_no_message_of_an_atomic_handler() -> None:
    kinds = drained(40, atomic=True)
    assert kinds["ack"] + kinds["ack and claim"] == 0


@pytest.mark.usefixtures("measured")
def test_autocommit_stays_off_between_the_atomic_messages_of_a_lot(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a handler's thread, each lot turns autocommit off and on once, however many messages it has."""
    sent, lots = list[bool](), list[int]()
    send: Any = DatabaseWrapper._set_autocommit  # type: ignore[attr-defined]
    start = HandlerPool.start

    def note(wrapper: DatabaseWrapper, autocommit: bool) -> None:
        if threading.current_thread().name.startswith("mqueue-handler"):
            sent.append(autocommit)
        send(wrapper, autocommit)

    def note_lot(pool: HandlerPool, calls: list[HandlerCall]) -> None:
        lots.append(len(calls))
        start(pool, calls)

    monkeypatch.setattr(DatabaseWrapper, "_set_autocommit", note)
    monkeypatch.setattr(HandlerPool, "start", note_lot)
    monkeypatch.setattr("django_mqueue.workers.sharing.LOTS_FROM", 10)
    drained(1000, 10, 1, atomic=True)
    assert max(lots) > 10
    # The thread's connection may turn it on once when it opens.
    assert len(sent) <= 2 * len(lots) + 1


def test_many_acks_are_one_transaction_of_short_statements() -> None:
    """The server compares each row with all receipts of its statement."""
    publish_many("t", [OutgoingMessage(n, key=f"k{n}") for n in range(450)])
    with Subscription("t", "g", batch_size=1000) as subscription:
        deliveries = poll_until(subscription, 450, max_messages=1000)
        with CaptureQueriesContext(connection) as captured:
            engine_of(subscription).acknowledger.ack(deliveries)
    statements = [query["sql"] for query in captured.captured_queries]
    assert [text.count("s.delivery_token = ") for text in statements if "SET s.acked = 1" in text] == [
        200,
        200,
        50,
    ]
    assert statements.count("COMMIT") == 1
