"""Connections of the loop and of a handler are killed inside a transaction. The same process continues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from django_mqueue import publish
from django_mqueue.models import DeliveryState
from tests.support.processes import FAST, Worker, Workers, wait_until
from tests.support.shop.models import Door, Sale, Step
from tests.support.threads import RawConnection, raw_connection
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

UNHURRIED = {**FAST, "LEASE_DURATION": 600, "LEASE_RENEWAL_INTERVAL": 10, "DISCOVERY_INTERVAL": 0.1}
"""The leases are long, so no test here depends on an expired lease."""


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers(UNHURRIED) as workers:
        yield workers


@pytest.fixture
def blocker() -> Iterator[RawConnection]:
    with raw_connection() as blocker:
        yield blocker


def query(sql: str, *params: Any) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def others() -> dict[int, str]:
    """Return the ids of all other connections to this database, with the statement that each executes."""
    rows = query("SHOW FULL PROCESSLIST")
    mine, database = query("SELECT CONNECTION_ID(), DATABASE()")[0]
    return {int(str(row[0])): str(row[7] or "") for row in rows if row[3] == database and row[0] != mine}


def statement_that_waits(beginning: str) -> int:
    """Wait until a connection runs a statement with this beginning, and return the connection's id."""

    def find() -> object:
        return next((number for number, info in others().items() if info.startswith(beginning)), 0)

    return int(str(wait_until(find, f"{beginning} waits for a lock")))


def kill(connection_id: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("KILL %s", [connection_id])


def started(workers: Workers) -> Worker:
    """Start a worker that handles number 1 of key k, and so owns its partition.

    Its statements wait for a lock until the test kills the connection.
    """
    publish("orders", {"n": 1}, key="k")
    worker = workers.run(
        ("django", "runconsumer"), "orders:billing", "--threads", "1", "--name", "w",
        TEST_LOCK_WAIT=f"{PATIENCE:.0f}",
    )  # fmt: skip
    wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 1, "it has begun")
    return worker


def assert_done(worker: Worker, number: int, attempts: list[int]) -> None:
    """Check that this process handled the message in these attempts, and that it exits with 0."""
    wait_until(lambda: not DeliveryState.objects.filter(acked=False).exists(), "all is acked")
    wait_until(lambda: Step.objects.filter(what="end", number=number).exists(), "it has ended")
    starts = Step.objects.filter(what="start", number=number).order_by("id")
    assert [(step.attempt, step.pid) for step in starts] == [(attempt, worker.pid) for attempt in attempts]
    assert worker.stop() == 0


def test_the_loops_connection_dies_in_the_middle_of_marking_a_message(
    workers: Workers, blocker: RawConnection
) -> None:
    """The claim has locked its leases. The worker claims the message again, and no attempt is used."""
    worker = started(workers)
    last = int(str(query("SELECT MAX(`offset`) FROM queue_messages")[0][0]))
    for offset in range(last + 1, last + 20):
        blocker.execute(
            "INSERT INTO queue_delivery_state (consumer_group, topic, partition_key, message_offset, acked, in_flight,"
            " invisible_until, retry_count, failure_count, delivery_token, handed, alone, delivered_to, delivered_at)"
            " VALUES ('billing', 'orders', 'k', %s, 0, 1, 0, 0, 0, 1, 0, 0, '', 0)",
            [offset],
        )
    publish("orders", {"n": 2}, key="k")
    kill(statement_that_waits("INSERT INTO queue_delivery_state"))
    wait_until(lambda: "retrying" in worker.output(), "it has noticed")
    blocker.rollback()
    assert_done(worker, 2, [1])


def test_the_loops_connection_dies_in_the_middle_of_an_ack(workers: Workers, blocker: RawConnection) -> None:
    """The handler has ended. The worker acks its message on the next connection and does not handle it again."""
    worker = started(workers)
    publish("orders", {"n": 2, "do": "wait", "door": "exit"}, key="k")
    wait_until(lambda: Step.objects.filter(number=2).exists(), "the handler has started")
    blocker.execute("SELECT * FROM queue_delivery_state WHERE acked = 0 FOR UPDATE")
    Door.objects.create(name="exit")
    kill(statement_that_waits("UPDATE queue_delivery_state"))
    wait_until(lambda: "retrying" in worker.output(), "it has noticed")
    blocker.rollback()
    assert_done(worker, 2, [1])


def test_the_loops_connection_dies_while_it_is_idle(workers: Workers) -> None:
    worker = started(workers)
    own = {int(str(row[0])) for row in query("SELECT connection_id FROM shop_step")}
    for connection_id in others().keys() - own:
        kill(connection_id)
    publish("orders", {"n": 2}, key="k")
    assert_done(worker, 2, [1])


def test_a_handlers_connection_dies_in_the_middle_of_its_transaction(workers: Workers) -> None:
    """Its writes are rolled back, and the attempt fails. The next attempt succeeds on a new connection."""
    worker = started(workers)
    publish("orders", {"n": 2, "do": "sell", "door": "exit"}, key="k")
    step = wait_until(lambda: Step.objects.filter(number=2).first(), "the handler has started")
    wait_until(lambda: in_transaction(step.connection_id), "it has written its sale", every=0.2)
    kill(step.connection_id)
    wait_until(lambda: DeliveryState.objects.filter(failure_count=1).exists(), "the attempt has failed")
    Door.objects.create(name="exit")
    assert_done(worker, 2, [1, 2])
    assert Sale.objects.filter(number=2).count() == 1


def in_transaction(connection_id: int) -> bool:
    return bool(
        query("SELECT 1 FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = %s", connection_id)
    )


def test_a_handlers_connection_dies_between_two_messages(workers: Workers) -> None:
    """The handler gets a new connection for the next message, and no attempt is used."""
    worker = started(workers)
    kill(Step.objects.filter(number=1, what="start").get().connection_id)
    publish("orders", {"n": 2}, key="k")
    assert_done(worker, 2, [1])
